// FARLIFT_API marks what libfarlift exports; everything else in the library is hidden.
#pragma once

#define FARLIFT_API __attribute__((visibility("default")))

// What a user of the installed library writes; needs no server.
#include <farlift/client.h>

#include <cstdio>
#include <cstring>
#include <span>

int main() {
  const char text[] = "123456789";
  if (farlift::rdma_checksum(std::as_bytes(std::span(text, 9))) != 0xE3069283u) return 1;
  if (!farlift::rdma_available()) return 2;
  if (!farlift::rdma_usable(farlift::RdmaProvider::soft).usable) return 3;

  auto buffer = farlift::RdmaBuffer::allocate(100'000);
  if (!buffer || buffer->bytes().size() != 100'000) return 4;

  farlift::ClientOptions options;
  options.rdma = farlift::RdmaConfiguration{};
  options.compression = true;
  auto refused = farlift::Client::create(options);
  if (refused || refused.error().kind != farlift::ErrorKind::configuration) return 5;
  if (std::strcmp(farlift::to_string(refused.error().kind), "configuration") != 0) return 6;

  options.compression = false;
  options.unix_path = "no-such-socket";
  auto missing = farlift::Client::create(options);
  if (missing || missing.error().kind != farlift::ErrorKind::connection) return 7;
  std::printf("consumer: %s\n", missing.error().text.c_str());
  return 0;
}

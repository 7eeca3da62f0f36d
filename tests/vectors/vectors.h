// Reads tests/vectors/*.txt. A line is four fields separated by " | ": name, input in hex, output
// in hex, source. An input of several parts separates them by ':'; '-' is an empty part. Blank
// lines and lines that start with '#' are skipped.
//
// Errors: a file that is missing, empty or malformed fails the test that reads it.
#pragma once

#include "core/codec/text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::vectors {

struct Vector {
  std::string name;
  std::vector<std::vector<std::byte>> in;
  std::vector<std::byte> out;
};

inline std::vector<std::string> split(std::string_view text, std::string_view by) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(by);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + by.size());
  }
}

inline std::vector<std::byte> field(std::string_view text) {
  if (text == "-") return {};
  auto decoded = codec::hex_decode(text);
  EXPECT_TRUE(decoded.ok() && !text.empty()) << "not hex: " << text;
  return decoded.ok() ? std::move(decoded).value() : std::vector<std::byte>{};
}

inline std::vector<Vector> read(const std::string& file) {
  std::ifstream in(std::string(FARLIFT_SOURCE_DIR) + "/tests/vectors/" + file);
  EXPECT_TRUE(in.is_open()) << file;
  std::vector<Vector> vectors;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto parts = split(line, " | ");
    EXPECT_EQ(parts.size(), 4u) << file << ": " << line;
    if (parts.size() != 4) continue;
    Vector vector{parts[0], {}, field(parts[2])};
    for (const std::string& part : split(parts[1], ":")) vector.in.push_back(field(part));
    vectors.push_back(std::move(vector));
  }
  EXPECT_FALSE(vectors.empty()) << file;
  return vectors;
}

}  // namespace farlift::vectors

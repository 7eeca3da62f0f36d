#include "apps/demo_kv.h"

#include "apps/console.h"
#include "apps/files.h"
#include "apps/process.h"
#include "core/base/clock.h"
#include "core/digest/crc32c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>

namespace farlift::apps {

namespace {

constexpr std::chrono::seconds kReaderLimit(300);
constexpr std::size_t kAnswerMax = 65536;

double seconds_since(Instant start) {
  return std::chrono::duration<double>(SystemClock().now() - start).count();
}

std::vector<std::string> block_keys(const std::string& key, std::uint64_t bytes) {
  std::vector<std::string> keys;
  for (std::uint64_t at = 0; at < bytes; at += kDemoBlock)
    keys.push_back(fmt::format("{}/{}", key, keys.size()));
  return keys;
}

std::size_t block_length(std::uint64_t bytes, std::size_t index) {
  return static_cast<std::size_t>(std::min(kDemoBlock, bytes - index * kDemoBlock));
}

// Anonymous pages that go away with it.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at != MAP_FAILED) at_ = at;
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
  }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(at_), at_ == nullptr ? 0 : bytes_};
  }

 private:
  const std::size_t bytes_;
  void* at_ = nullptr;
};

double number_in(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? 0 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

Outcome<std::string> read_in_another_process(const KvConnect& where, const std::string& path,
                                             const std::string& key, const std::string& folder) {
  Outcome<std::string> self = absolute_path("/proc/self/exe");
  if (!self) return fail(self.error());
  Child::Options wanted;
  wanted.argv = {
      *self,      "kv",         "compare", key,           path, "--valkey", where.valkey.front(),
      "--tenant", where.tenant, "--keys",  where.key_file};
  wanted.output = fmt::format("{}/compare-{}", folder, std::hash<std::string>()(key));
  Outcome<Child> child = Child::start(wanted);
  if (!child) return fail(child.error());
  const std::optional<int> ended = child->ended(kReaderLimit);
  Outcome<std::string> said = read_file(wanted.output, kAnswerMax);
  if (!said) return fail(said.error());
  if (!ended || !WIFEXITED(*ended) || WEXITSTATUS(*ended) != kExitOk) {
    const int code = ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : kExitFailed;
    return fail(code, "the reading process: " + *said);
  }
  return *said;
}

}  // namespace

Outcome<KvRow> lift_kv(KvClient& client, const KvConnect& where, const std::string& path,
                       const std::string& key, const std::string& folder) {
  Outcome<MappedFile> source = MappedFile::source(path);
  if (!source) return fail(source.error());
  const std::span<std::byte> bytes = source->bytes();
  const std::vector<std::string> keys = block_keys(key, bytes.size());
  Expected<KvMemory> memory = client.register_memory(bytes);
  if (!memory) return fail(kExitFailed, memory.error().text);
  std::vector<KvPut> puts;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    puts.push_back({keys[i], bytes.subspan(i * kDemoBlock, block_length(bytes.size(), i)),
                    KvPutMode::replace, 0, false});
  }
  KvRow row;
  const Instant start = SystemClock().now();
  const std::vector<KvResult> results = client.mput(puts);
  row.put_s = seconds_since(start);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok()) return fail(explain(results[i], "cannot put block " + keys[i]));
  }
  Outcome<std::string> said = read_in_another_process(where, path, key, folder);
  if (!said) return fail(said.error());
  row.bytes = bytes.size();
  row.blocks = keys.size();
  row.get_s = number_in(*said, "seconds");
  row.checksum = static_cast<std::uint32_t>(number_in(*said, "crc32c"));
  if (row.checksum != digest::crc32c(bytes).raw())
    return fail(kExitCorrupt, fmt::format("{} was read back different", path));
  return row;
}

int run_kv_compare(const KvCommand& command) {
  Outcome<MappedFile> file = MappedFile::source(command.file);
  if (!file) return report(file.error(), false);
  Outcome<KvClient> client = connect_kv(command.connect);
  if (!client) return report(client.error(), false);
  const std::span<std::byte> wanted = file->bytes();
  const Pages landing(wanted.size());
  if (landing.bytes().empty()) return report({kExitFailed, "there is no memory to land in"}, false);
  std::fill(landing.bytes().begin(), landing.bytes().end(), std::byte{0xEE});
  Expected<KvMemory> memory = client->register_memory(landing.bytes());
  if (!memory) return report({kExitFailed, memory.error().text}, false);
  const std::vector<std::string> keys = block_keys(command.key, wanted.size());
  std::vector<KvGet> gets;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    gets.push_back({keys[i],
                    landing.bytes().subspan(i * kDemoBlock, block_length(wanted.size(), i)),
                    KvReadMode::framed, 0});
  }
  const Instant start = SystemClock().now();
  const std::vector<KvResult> results = client->mget(gets);
  const double seconds = seconds_since(start);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok()) return report(explain(results[i], "cannot get block " + keys[i]), false);
    if (results[i].length != gets[i].dest.size())
      return report({kExitCorrupt, "block " + keys[i] + " has another length"}, false);
  }
  const auto [p, q] = std::mismatch(wanted.begin(), wanted.end(), landing.bytes().begin());
  if (p != wanted.end())
    return report({kExitCorrupt, fmt::format("byte {} differs", p - wanted.begin())}, false);
  print(JsonObject()
            .integer("bytes", static_cast<std::int64_t>(wanted.size()))
            .number("seconds", seconds)
            .integer("crc32c", digest::crc32c(landing.bytes()).raw())
            .str() +
        "\n");
  return kExitOk;
}

}  // namespace farlift::apps

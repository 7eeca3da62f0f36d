#include "apps/demo.h"

#include "apps/connect.h"
#include "apps/console.h"
#include "apps/demo_kv.h"
#include "apps/files.h"
#include "apps/private_node.h"
#include "apps/server.h"
#include "apps/stack.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace farlift::apps {

namespace {

struct Row {
  std::string door = "blob";
  std::string file;
  std::uint64_t bytes = 0;
  double set_s = 0;
  double get_s = 0;
  std::uint32_t checksum = 0;
};

double seconds_since(Instant start) {
  return std::chrono::duration<double>(SystemClock().now() - start).count();
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Bytes in which every position can be told from every other.
Outcome<void> generate(const std::string& path, std::uint64_t size, Progress& progress) {
  progress.restart("making " + path, size);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return fail(kExitFailed, "cannot write " + path);
  Prng prng(size);
  std::vector<std::uint64_t> piece(131072);
  for (std::uint64_t at = 0; at < size;) {
    for (std::uint64_t& word : piece) word = prng.next();
    const std::uint64_t want = std::min<std::uint64_t>(piece.size() * 8, size - at);
    const ssize_t put = write(file.get(), piece.data(), want);
    if (put <= 0) return fail(kExitFailed, fmt::format("cannot write {}: is the disk full?", path));
    at += static_cast<std::uint64_t>(put);
    progress.at(at);
  }
  return {};
}

Outcome<void> compare(const std::string& path, std::span<const std::byte> sent,
                      std::span<const std::byte> got) {
  const auto [p, q] = std::mismatch(sent.begin(), sent.end(), got.begin(), got.end());
  if (p == sent.end() && q == got.end()) return {};
  return fail(kExitCorrupt,
              fmt::format("{} came back different at byte {}", path, p - sent.begin()));
}

// One file there and back: from its own pages into fresh memory, then compared byte by byte.
Outcome<Row> lift(Client& client, const std::string& path) {
  Row row;
  row.file = path;
  const std::string key = fmt::format("demo:{}", base_name(path));
  Outcome<MappedFile> source = MappedFile::source(path);
  if (!source) return fail(source.error());
  row.bytes = source->bytes().size();
  row.checksum = rdma_checksum(source->bytes());
  Expected<RdmaRegion> from = client.register_rdma_region(source->bytes());
  if (!from) return fail(explain(from.error(), "cannot register " + path));
  Expected<RdmaWindow> out = from->window();
  if (!out) return fail(explain(out.error(), "cannot use " + path));
  Instant start = SystemClock().now();
  Expected<void> set = client.rdma_set(key, *out, row.checksum);
  row.set_s = seconds_since(start);
  if (!set) return fail(explain(set.error(), "BLOB.RDMA_SET of " + path));

  Expected<RdmaBuffer> landing = RdmaBuffer::allocate(row.bytes);
  if (!landing) return fail(explain(landing.error(), "no memory for " + path));
  std::memset(landing->bytes().data(), 0xEE, row.bytes);  // touched, and unlike any answer
  Expected<RdmaRegion> to = client.register_rdma_region(*landing);
  if (!to) return fail(explain(to.error(), "cannot register memory"));
  Expected<RdmaWindow> in = to->window();
  if (!in) return fail(explain(in.error(), "cannot use memory"));
  start = SystemClock().now();
  Expected<std::optional<RdmaReadReceipt>> receipt = client.rdma_get(key, *in);
  row.get_s = seconds_since(start);
  if (!receipt) return fail(explain(receipt.error(), "BLOB.RDMA_GET of " + path));
  if (!*receipt || (*receipt)->bytes_written != row.bytes || (*receipt)->checksum != row.checksum) {
    return fail(kExitCorrupt, fmt::format("the server answered another value for {}", path));
  }
  for (RdmaRegion* region : {&*from, &*to}) {
    if (Expected<void> closed = region->close(); !closed)
      return fail(explain(closed.error(), "cannot release memory"));
  }
  if (Outcome<void> same = compare(path, source->bytes(), landing->bytes()); !same) {
    return fail(same.error());
  }
  return row;
}

std::vector<std::string> default_files() {
  std::vector<std::string> files;
  if (Outcome<std::string> self = absolute_path("/proc/self/exe")) files.push_back(*self);
  if (Outcome<std::string> module = find_module()) files.push_back(*module);
  if (Outcome<std::string> server = find_valkey_server()) files.push_back(*server);
  return files;
}

void show(const DemoOptions& options, const std::vector<Row>& rows) {
  if (options.json) {
    std::vector<std::string> items;
    items.reserve(rows.size());
    for (const Row& row : rows) {
      items.push_back(JsonObject()
                          .text("door", row.door)
                          .text("file", row.file)
                          .integer("bytes", static_cast<std::int64_t>(row.bytes))
                          .number("set_gb_per_s", static_cast<double>(row.bytes) / row.set_s / 1e9)
                          .number("get_gb_per_s", static_cast<double>(row.bytes) / row.get_s / 1e9)
                          .text("crc32c", fmt::format("{:08x}", row.checksum))
                          .boolean("checked", true)
                          .str());
    }
    print(json_list(items, true) + "\n");
    return;
  }
  Table table({"door", "file", "size", "put", "got", "checked"});
  for (const Row& row : rows) {
    table.add({row.door, base_name(row.file), human_bytes(row.bytes),
               human_rate(static_cast<double>(row.bytes) / row.set_s),
               human_rate(static_cast<double>(row.bytes) / row.get_s),
               fmt::format("every byte, CRC-32C {:08x}", row.checksum)});
  }
  print("\n" + table.text() + "\n");
}

struct Where {
  ConnectOptions blob;
  KvConnect kv;
};

Outcome<void> lift_all_kv(const KvConnect& where, const std::vector<std::string>& files,
                          const std::string& folder, Progress& progress, std::vector<Row>& rows) {
  progress.restart("connecting to the data node", 0);
  Outcome<KvClient> client = connect_kv(where);
  if (!client) return fail(client.error());
  for (const std::string& file : files) {
    progress.restart("lifting blocks of " + file, 0);
    const std::string key = fmt::format("demo:{}", base_name(file));
    Outcome<KvRow> lifted = lift_kv(*client, where, file, key, folder);
    if (!lifted) return fail(lifted.error());
    Row row;
    row.door = "kvcache";
    row.file = file;
    row.bytes = lifted->bytes;
    row.set_s = lifted->put_s;
    row.get_s = lifted->get_s;
    row.checksum = lifted->checksum;
    rows.push_back(std::move(row));
  }
  return {};
}

Outcome<std::vector<Row>> lift_all(const DemoOptions& options, const Where& where,
                                   const std::string& folder) {
  Progress progress("connecting", 0, options.quiet || options.json);
  std::vector<std::string> files = options.files.empty() ? default_files() : options.files;
  if (options.files.empty() && options.generated_size > 0) {
    const std::string generated = folder + "/generated";
    if (Outcome<void> made = generate(generated, options.generated_size, progress); !made)
      return fail(made.error());
    files.push_back(generated);
  }
  std::uint64_t beats = 0;
  Outcome<Client> client = connect(where.blob, [&] { progress.at(++beats); });
  if (!client) return fail(client.error());
  std::vector<Row> rows;
  for (const std::string& file : files) {
    progress.restart("lifting " + file, 0);
    Outcome<Row> row = lift(*client, file);
    if (!row) return fail(row.error());
    rows.push_back(std::move(*row));
  }
  if (Outcome<void> done = lift_all_kv(where.kv, files, folder, progress, rows); !done)
    return fail(done.error());
  return rows;
}

int run_kept(const DemoOptions& options) {
  Outcome<TempFolder> folder = TempFolder::make();
  if (!folder) return report(folder.error(), options.json);
  UpOptions up;
  up.directory = options.directory.empty() ? folder->path() + "-stack" : options.directory;
  Outcome<Stack> stack = start_detached(up);
  if (!stack) return report(stack.error(), options.json);
  Where where;
  where.blob.directory = up.directory;
  where.kv.valkey = {fmt::format("{}:{}", stack->host, stack->port)};
  where.kv.tenant = stack->tenant;
  where.kv.key_file = stack->key_file;
  Outcome<std::vector<Row>> rows = lift_all(options, where, folder->path());
  if (!rows) {
    up.quiet = true;
    run_up_stop(up);
    return report(rows.error(), options.json);
  }
  show(options, *rows);
  return options.json ? kExitOk : run_up_status(up);
}

}  // namespace

int run_demo(const DemoOptions& options) {
  if (options.keep) return run_kept(options);
  Outcome<TempFolder> folder = TempFolder::make();
  if (!folder) return report(folder.error(), options.json);
  say(options.quiet || options.json,
      "starting a private valkey-server with the module, and a data node, on loopback");
  ServerOptions wanted;
  wanted.directory = folder->path() + "/stack";
  wanted.module = {{"fabric-interfaces", "lo"}};
  if (Outcome<void> made = make_folder(wanted.directory); !made)
    return report(made.error(), options.json);
  Outcome<std::unique_ptr<PrivateServer>> server = PrivateServer::start(wanted);
  if (!server) return report(server.error(), options.json);
  PrivateNodeOptions node_wanted;
  node_wanted.directory = wanted.directory;
  node_wanted.valkey_port = (*server)->port();
  Outcome<std::unique_ptr<PrivateNode>> node = PrivateNode::start(node_wanted);
  if (!node) return report(node.error(), options.json);
  Where where;
  where.blob.port = (*server)->port();
  where.kv.valkey = {fmt::format("127.0.0.1:{}", (*server)->port())};
  where.kv.tenant = kPrivateTenant;
  where.kv.key_file = (*node)->key_file();
  Outcome<std::vector<Row>> rows = lift_all(options, where, folder->path());
  (*node)->stop();
  (*server)->stop();
  if (!rows) return report(rows.error(), options.json);
  show(options, *rows);
  return kExitOk;
}

}  // namespace farlift::apps

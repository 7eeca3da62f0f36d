// farlift: one binary, a subcommand for each process and tool. Flags here, work elsewhere.
#include "apps/bench/bench.h"
#include "apps/console.h"
#include "apps/demo.h"
#include "apps/demo_kv.h"
#include "apps/doctor.h"
#include "apps/kv.h"
#include "apps/node.h"
#include "apps/s3.h"
#include "apps/stack.h"
#include "apps/transfer.h"
#include "apps/volume.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <functional>

namespace {

using namespace farlift::apps;

constexpr const char* kVersion = "farlift " FARLIFT_VERSION;
constexpr const char* kFooter =
    "\nExit status: 0 done, 1 failed, 2 wrong use, 3 no such key, 4 no server or connection lost,\n"
    "5 bytes did not match their checksum.  farlift COMMAND --help tells more.";

// `prefix` begins every flag: "--", "--node-".
void add_tls_options(CLI::App& app, farlift::TlsOptions& o, const std::string& prefix,
                     const char* group) {
  app.add_flag(prefix + "tls", o.enabled, "Speak TLS (control only; values are not encrypted)")
      ->group(group);
  app.add_option(prefix + "cacert", o.ca_file, "Certificate authority, PEM; default: the system's")
      ->group(group);
  app.add_option(prefix + "cert", o.certificate_file, "Own certificate, PEM")->group(group);
  app.add_option(prefix + "key-file", o.key_file, "Own private key, PEM")->group(group);
  app.add_option(prefix + "server-name", o.server_name,
                 "Name the certificate must carry; default: the host")
      ->group(group);
  app.add_flag_callback(
         prefix + "insecure", [&o] { o.verify_peer = false; }, "Accept any certificate")
      ->group(group);
}

void add_connect_options(CLI::App& app, ConnectOptions& o) {
  const char* group = "Server";
  app.add_option("--host", o.host, "Host of the server")->capture_default_str()->group(group);
  app.add_option("--port", o.port, "Port of the server")->capture_default_str()->group(group);
  app.add_option("--unix", o.unix_path, "Unix socket of the server, instead of host and port")
      ->group(group);
  app.add_option("--dir", o.directory, "Directory of `farlift up`; finds host and port")
      ->group(group);
  app.add_flag("--cluster", o.cluster, "The server is a node of a cluster")->group(group);
  app.add_option("--user", o.username, "User name")->group(group);
  app.add_option("--password", o.password,
                 "Password; better in the environment as FARLIFT_PASSWORD")
      ->group(group);
  app.add_option("--db", o.database, "Database number")->group(group);
  add_tls_options(app, o.tls, "--", "TLS");
  app.add_option("--provider", o.provider, "soft (no card), tcp (libfabric), verbs, efa")
      ->check(CLI::IsMember({"soft", "tcp", "verbs", "efa"}))
      ->capture_default_str()
      ->group("Fabric");
  app.add_option("--interface", o.interface_name, "Network interface or card")->group("Fabric");
}

void add_up(CLI::App& root, UpOptions& o, std::function<int()>& run) {
  CLI::App* app =
      root.add_subcommand("up", "Run a private valkey-server with the module, and a data node");
  app->footer(
      "\nRuns in the foreground until Ctrl-C or SIGTERM; its data stays in --dir. In --dir lie "
      "farlift.json\n"
      "(ports, process numbers), valkey.conf, valkey.log and the saved data.");
  app->add_option("--dir", o.directory, "Where data, logs and farlift.json lie")
      ->capture_default_str();
  app->add_option("--port", o.port, "Port of the server; 0: any free one")->capture_default_str();
  app->add_option("--bind", o.bind,
                  "Numeric address to listen on; beyond loopback --password is required")
      ->capture_default_str();
  app->add_option("--unix", o.unix_path, "Listen on this Unix socket too");
  app->add_option("--password", o.password, "Password that clients must give");
  app->add_option("--maxmemory", o.maxmemory, "Limit of the server's memory, e.g. 4gb");
  app->add_option("--max-object-size", o.max_object_size, "Largest object, e.g. 1gb");
  app->add_option("--segment-size", o.segment_size, "Size of one registered segment, e.g. 256mb");
  app->add_option("--provider", o.provider,
                  "fabric-provider of the module: Auto, Soft, Emulated, EfaDirect, Verbs");
  app->add_option("--interfaces", o.interfaces,
                  "fabric-interfaces of the module; default with loopback: lo");
  app->add_option("--set", o.server_settings,
                  "NAME=VALUE, any setting of valkey.conf; may be repeated");
  app->add_option("--module-set", o.module_settings,
                  "NAME=VALUE, any largeobj. setting; may be repeated");
  app->add_option("--kv-quota", o.kv_quota, "Memory of the data node, e.g. 1g")
      ->capture_default_str();
  app->add_option("--kv-arena-size", o.kv_arena_size, "Size of one of its arenas")
      ->capture_default_str();
  app->add_flag("--no-node", o.no_node, "No data node, the blob door only");
  app->add_flag("--no-save", o.no_save, "Do not save the data at the end");
  CLI::Option* detach = app->add_flag("--detach", o.detach, "Go to the background once it answers");
  CLI::Option* stop = app->add_flag("--stop", o.stop, "Stop what runs in --dir")->excludes(detach);
  app->add_flag("--status", o.status, "Tell what runs in --dir; exit status 4: nothing")
      ->excludes(detach)
      ->excludes(stop);
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run] { run = [&o] { return run_up(o); }; });
}

void add_transfer(CLI::App& root, TransferOptions& o, bool get, std::function<int()>& run) {
  CLI::App* app = get ? root.add_subcommand("get", "Read a large object into a file, by RDMA")
                      : root.add_subcommand("put", "Store a file as a large object, by RDMA");
  app->footer(get ? "\nThe object lands in the file's own pages. The file appears only when it is "
                    "whole and its CRC-32C is\n"
                    "right; a failure leaves an older file of that name as it was."
                  : "\nThe file is mapped and the server fetches it from there. The server stores "
                    "it only if its CRC-32C is\n"
                    "that of the file.");
  app->add_option("key", o.key, "Key")->required();
  app->add_option("file", o.file, "File")->required();
  add_connect_options(*app, o.connect);
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run, get] { run = [&o, get] { return get ? run_get(o) : run_put(o); }; });
}

void add_demo(CLI::App& root, DemoOptions& o, std::string& size, std::function<int()>& run) {
  CLI::App* app =
      root.add_subcommand("demo", "Lift real files through every door and check every byte");
  app->add_option("files", o.files,
                  "Files to lift; default: programs of this machine and a generated file");
  app->add_option("--size", size, "Size of the generated file, 0: none")->capture_default_str();
  app->add_option("--dir", o.directory, "With --keep: directory of the stack");
  app->add_flag("--keep", o.keep, "Leave the stack running, and tell how to use and stop it");
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Show the table only");
  app->callback([&o, &size, &run] {
    run = [&o, &size] {
      Outcome<std::uint64_t> bytes = parse_bytes(size);
      if (!bytes) return report(bytes.error(), o.json);
      o.generated_size = *bytes;
      return run_demo(o);
    };
  });
}

void add_node(CLI::App& root, NodeCommand& o, std::function<int()>& run) {
  CLI::App* app = root.add_subcommand("node", "Run a data node of the one-sided cache");
  app->footer(
      "\nServes until Ctrl-C or SIGTERM. SIGUSR1 empties it first: hot values move to other nodes, "
      "then it ends.\n"
      "docs/kvcache.md explains arenas, rotation and the limits.");
  const char* node = "Node";
  app->add_option("--id", o.id, "Number of this node; stable over restarts, unique in the fleet")
      ->check(CLI::Range(std::uint64_t{1}, UINT64_MAX))
      ->capture_default_str()
      ->group(node);
  app->add_option("--listen", o.listen, "Numeric address of control and fabric endpoints")
      ->capture_default_str()
      ->group(node);
  app->add_option("--port", o.port, "Control port; 0: any free one")
      ->capture_default_str()
      ->group(node);
  app->add_option("--advertise", o.advertise, "Address that clients are told; default: --listen")
      ->group(node);
  app->add_option("--tenant", o.tenants,
                  "NAME,keys=FILE,quota=SIZE; may be repeated. Without keys: development mode, "
                  "nothing is signed")
      ->required()
      ->group(node);
  app->add_option("--arena-size", o.arena_size, "Power of two; the unit of eviction")
      ->capture_default_str()
      ->group(node);
  app->add_option("--pinned-max", o.pinned_max, "Most bytes of arenas of all tenants")->group(node);
  const char* directory = "Directory (Valkey)";
  app->add_option("--valkey", o.valkey,
                  "HOST:PORT of the server; with --cluster and --sentinel several")
      ->capture_default_str()
      ->group(directory);
  app->add_option("--dir", o.directory, "Directory of `farlift up`; finds the server")
      ->group(directory);
  app->add_flag("--cluster", o.cluster, "--valkey are nodes of a cluster")->group(directory);
  app->add_option("--sentinel", o.sentinel_primary, "--valkey are sentinels; the primary's name")
      ->group(directory);
  app->add_option("--user", o.username, "User name")->group(directory);
  app->add_option("--password", o.password,
                  "Password; better in the environment as FARLIFT_PASSWORD")
      ->group(directory);
  add_tls_options(*app, o.tls, "--", "TLS to the directory");
  const char* links = "TLS 1.3 of control connections (clients and other nodes)";
  app->add_option("--link-cert", o.link_certificate,
                  "Certificate, PEM; with it clients must speak TLS")
      ->group(links);
  app->add_option("--link-key-file", o.link_key, "Its private key, PEM")->group(links);
  app->add_option("--link-cacert", o.link_ca,
                  "Authority of other nodes' certificates, PEM; default: the system's")
      ->group(links);
  app->add_flag("--link-mutual", o.link_mutual, "Clients must show a certificate of --link-cacert")
      ->group(links);
  app->add_option("--provider", o.provider, "soft (no card), tcp (libfabric), verbs, efa")
      ->check(CLI::IsMember({"soft", "tcp", "verbs", "efa"}))
      ->capture_default_str()
      ->group("Fabric");
  app->add_option("--interface", o.interfaces,
                  "A rail: a network interface or card (soft: a local address); may be repeated")
      ->group("Fabric");
  const char* times = "Times";
  app->add_option("--lease-ms", o.lease_ms, "Longest age of a cached descriptor")
      ->capture_default_str()
      ->group(times);
  app->add_option("--operation-limit-ms", o.operation_limit_ms, "Limit of one read or pull")
      ->capture_default_str()
      ->group(times);
  app->add_option("--grace-ms", o.grace_ms,
                  "Between unpublishing and fencing an arena; lease + operation limit or more "
                  "spares readers a failed read")
      ->capture_default_str()
      ->group(times);
  app->add_option("--descriptor-ttl-s", o.descriptor_ttl_s, "Life of a descriptor in Valkey")
      ->capture_default_str()
      ->group(times);
  app->add_option("--ready-file", o.ready_file,
                  "Written, with the port in it, once the node serves");
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run] { run = [&o] { return run_node(o); }; });
}

void add_volume(CLI::App& root, VolumeCommand& o, std::function<int()>& run) {
  CLI::App* app = root.add_subcommand("volume", "Run a volume server of the S3 door");
  app->footer(
      "\nServes until Ctrl-C or SIGTERM; SIGHUP reads --security again. docs/s3.md explains files, "
      "durability and the budget.");
  const char* files = "Files";
  app->add_option("--dir", o.directory, "Directory of the volume files; made when missing")
      ->required()
      ->group(files);
  app->add_option("--volumes", o.volumes, "Make volumes 1 to N at the start")->group(files);
  app->add_option("--fsync", o.fsync,
                  "always: one sync a write; batch: writes that arrive together share one. Either "
                  "way an answer means durable")
      ->check(CLI::IsMember({"always", "batch"}))
      ->capture_default_str()
      ->group(files);
  app->add_option("--disk", o.disk, "auto takes io_uring where it works")
      ->check(CLI::IsMember({"auto", "posix", "uring"}))
      ->capture_default_str()
      ->group(files);
  app->add_option("--volume-size", o.volume_size, "A longer volume takes no more writes")
      ->capture_default_str()
      ->group(files);
  app->add_option("--keep-free", o.keep_free, "Space of the disk left for deletions")
      ->capture_default_str()
      ->group(files);
  app->add_option("--needle-max", o.needle_max, "Largest needle")
      ->capture_default_str()
      ->group(files);
  app->add_option("--compact-percent", o.compact_percent,
                  "Rewrite a volume when this share of it is garbage; 0: only when told")
      ->capture_default_str()
      ->group(files);
  const char* network = "Network";
  app->add_option("--listen", o.listen, "Numeric address of both ports and of the fabric")
      ->capture_default_str()
      ->group(network);
  app->add_option("--port", o.port, "HTTP data port; 0: any free one")
      ->capture_default_str()
      ->group(network);
  app->add_option("--control-port", o.control_port, "Port of the object service; 0: any free one")
      ->capture_default_str()
      ->group(network);
  app->add_option("--workers", o.workers, "HTTP requests at once")
      ->capture_default_str()
      ->group(network);
  app->add_option("--replica", o.replicas,
                  "HOST:PORT of a volume server that holds the same volumes; may be repeated")
      ->group(network);
  const char* security = "Security";
  app->add_option("--security", o.security,
                  "File with [jwt.signing] and [jwt.signing.read]; without it nobody is asked")
      ->group(security);
  app->add_flag("--rdma.allow-unauthenticated-reads", o.allow_unauthenticated_reads,
                "Control port: no read checks. Trusted networks only")
      ->group(security);
  const char* fabric = "Fabric";
  app->add_option("--rdma.pinned-budget", o.pinned_budget,
                  "Most registered memory; default: RLIMIT_MEMLOCK less 8 MiB")
      ->group(fabric);
  app->add_option("--dc-key", o.dc_key, "Key that both ends of a transfer hold")
      ->capture_default_str()
      ->group(fabric);
  app->add_option(
         "--emulate-allow", o.targets,
         "Networks (CIDR, commas) that tokens may point into; default: any unicast address")
      ->group(fabric);
  app->add_option("--ready-file", o.ready_file, "Written, with both ports in it, once it serves");
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run] { run = [&o] { return run_volume(o); }; });
}

void add_s3(CLI::App& root, S3Command& o, std::function<int()>& run) {
  CLI::App* app = root.add_subcommand("s3", "Run the S3 gateway");
  app->footer(
      "\nServes until Ctrl-C or SIGTERM; SIGHUP reads --identities again. docs/s3.md lists the "
      "operations and the limits.");
  const char* storage = "Storage";
  app->add_option("--dir", o.directory, "Directory of the catalog; made when missing")
      ->required()
      ->group(storage);
  app->add_option("--volume", o.volumes, "HOST:PORT of a volume server; may be repeated")
      ->required()
      ->group(storage);
  app->add_option("--catalog-sync", o.catalog_sync,
                  "full: an answer means that the catalog is on disk; normal: a power failure may "
                  "take the last requests")
      ->check(CLI::IsMember({"full", "normal"}))
      ->capture_default_str()
      ->group(storage);
  app->add_option("--sweep-s", o.sweep_s, "Seconds between two sweeps of needles without an owner")
      ->capture_default_str()
      ->group(storage);
  const char* network = "Network";
  app->add_option("--listen", o.listen, "Numeric address")->capture_default_str()->group(network);
  app->add_option("--port", o.port, "Port; 0: any free one")->capture_default_str()->group(network);
  app->add_option("--domain", o.domain, "BUCKET.DOMAIN in the field Host names a bucket")
      ->group(network);
  app->add_option("--workers", o.workers, "Requests at once")
      ->capture_default_str()
      ->group(network);
  app->add_option("--connections-max", o.connections_max, "Connections; more wait")
      ->capture_default_str()
      ->group(network);
  app->add_option("--cert", o.certificate, "Certificate, PEM; with it clients must speak TLS")
      ->group(network);
  app->add_option("--key-file", o.private_key, "Its private key, PEM")->group(network);
  const char* security = "Security";
  app->add_option("--identities", o.identities, "File of identities, keys and policies (JSON)")
      ->group(security);
  app->add_option("--access-key", o.access_key, "One identity that may do everything")
      ->group(security);
  app->add_option("--secret-key", o.secret_key,
                  "Its secret; better in the environment as FARLIFT_S3_SECRET_KEY")
      ->group(security);
  app->add_flag("--anonymous", o.anonymous, "Everybody may do everything; to try things out")
      ->group(security);
  app->add_option("--security", o.security,
                  "File with [jwt.signing] and [jwt.signing.read], as the volume servers have it")
      ->group(security);
  app->add_option("--region", o.region, "Region that signatures must name")
      ->capture_default_str()
      ->group(security);
  app->add_option("--access-log", o.access_log, "File of the access log, JSON lines; -: stdout");
  app->add_option("--ready-file", o.ready_file, "Written, with the port in it, once it serves");
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run] { run = [&o] { return run_s3(o); }; });
}

void add_kv_connect(CLI::App& app, KvConnect& o) {
  const char* group = "Cache";
  app.add_option("--dir", o.directory, "Directory of `farlift up`; finds server, tenant and keys")
      ->group(group);
  app.add_option("--valkey", o.valkey,
                 "HOST:PORT of the directory; with --cluster and --sentinel several")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--cluster", o.cluster, "--valkey are nodes of a cluster")->group(group);
  app.add_option("--sentinel", o.sentinel_primary, "--valkey are sentinels; the primary's name")
      ->group(group);
  app.add_option("--user", o.username, "User name")->group(group);
  app.add_option("--password", o.password,
                 "Password; better in the environment as FARLIFT_PASSWORD")
      ->group(group);
  add_tls_options(app, o.tls, "--", "TLS to the directory");
  add_tls_options(app, o.node_tls, "--node-", "TLS 1.3 to data nodes");
  app.add_option("--tenant", o.tenant, "Tenant")->group(group);
  CLI::Option* keys =
      app.add_option("--keys", o.key_file, "Key ring: lines '<key id> <64 hex digits>'")
          ->group(group);
  app.add_flag("--development", o.development, "No key ring: nothing is signed, nothing is checked")
      ->excludes(keys)
      ->group(group);
  app.add_option("--provider", o.provider, "soft (no card), tcp (libfabric), verbs, efa")
      ->check(CLI::IsMember({"soft", "tcp", "verbs", "efa"}))
      ->capture_default_str()
      ->group("Fabric");
  app.add_option("--interface", o.interfaces, "A rail: interface or card; may be repeated")
      ->group("Fabric");
}

CLI::App* add_kv_verb(CLI::App& kv, KvCommand& o, KvCommand::Verb verb, const char* name,
                      const char* text, std::function<int()>& run) {
  CLI::App* app = kv.add_subcommand(name, text);
  add_kv_connect(*app, o.connect);
  app->add_flag("--json", o.json, "Answer in JSON");
  app->add_flag("--quiet", o.quiet, "Say nothing but errors");
  app->callback([&o, &run, verb] {
    o.verb = verb;
    run = [&o] { return run_kv(o); };
  });
  return app;
}

void add_kv(CLI::App& root, KvCommand& o, std::function<int()>& run) {
  CLI::App* kv =
      root.add_subcommand("kv", "The one-sided cache: values straight out of a node's memory")
          ->require_subcommand(1);
  using Verb = KvCommand::Verb;
  CLI::App* put = add_kv_verb(*kv, o, Verb::put, "put", "Store a file; the node fetches it", run);
  put->add_option("key", o.key, "Key, 1 to 1024 bytes")->required();
  put->add_option("file", o.file, "File")->required();
  put->add_flag_callback(
      "--replace", [&o] { o.mode = "replace"; }, "Replace a value that is there");
  put->add_flag("--push", o.push,
                "Write it into the node instead; needs a rail that can be fenced");
  CLI::App* get =
      add_kv_verb(*kv, o, Verb::get, "get", "Read a value into a file, one-sidedly", run);
  get->add_option("key", o.key, "Key")->required();
  get->add_option("file", o.file, "File; appears only when it is whole and checked")->required();
  CLI::App* rm = add_kv_verb(*kv, o, Verb::remove, "rm", "Remove a key", run);
  rm->add_option("key", o.key, "Key")->required();
  CLI::App* stat = add_kv_verb(*kv, o, Verb::stat, "stat",
                               "Length and version of a key, or counters of nodes", run);
  stat->add_option("key", o.key, "Key; without it: the nodes' counters");
  stat->add_option("--node", o.node, "One node only");
  CLI::App* ls = add_kv_verb(*kv, o, Verb::list, "ls", "List the data nodes", run);
  ls->add_option("--node", o.node, "One node only");
  CLI::App* rotate = add_kv_verb(*kv, o, Verb::rotate, "rotate",
                                 "Rotate arenas: their values go, their memory is fenced", run);
  rotate->add_option("--node", o.node, "One node only");
  rotate->add_option("--arena", o.arena, "One arena only; default: all of the tenant's");
  CLI::App* drain = add_kv_verb(*kv, o, Verb::drain, "drain",
                                "Empty a node: hot values move, then it leaves", run);
  drain->add_option("--node", o.node, "Node")->required();
  // The reading process of the demo.
  CLI::App* compare = kv->add_subcommand("compare", "")->group("");
  add_kv_connect(*compare, o.connect);
  compare->add_option("key", o.key)->required();
  compare->add_option("file", o.file)->required();
  compare->callback([&o, &run] { run = [&o] { return run_kv_compare(o); }; });
}

void add_doctor(CLI::App& root, DoctorOptions& o, std::function<int()>& run) {
  CLI::App* app =
      root.add_subcommand("doctor", "Tell what this machine can do, and what to do about the rest");
  app->add_flag("--json", o.json, "Answer in JSON");
  app->callback([&o, &run] { run = [&o] { return run_doctor(o); }; });
}

void add_bench_door(CLI::App& bench, BenchOptions& o, bool kv, const char* name, const char* text,
                    std::function<int()>& run) {
  CLI::App* app = bench.add_subcommand(name, text);
  app->footer(
      "\nStarts a private valkey-server. Everything is measured in turn, round after round; "
      "figures are medians\n"
      "over the rounds. docs/benchmarks.md explains the method.");
  app->add_option("--sizes", o.sizes, "Sizes, e.g. 64k,1m,16m")->delimiter(',');
  app->add_option("--in-flight", o.in_flight, "Transfers at once, e.g. 1,4")->delimiter(',');
  app->add_option("--lanes", o.lanes, "Lanes: remote, host")->delimiter(',');
  app->add_option("--only", o.only, "Rows, by their first word, e.g. blob.rdma_get,raw_tcp")
      ->delimiter(',');
  app->add_option("--rounds", o.rounds, "Rounds")->capture_default_str();
  app->add_option("--seconds", o.seconds, "Seconds for each measurement in a round")
      ->capture_default_str();
  app->add_flag("--quick", o.quick, "Few sizes, short rounds: a smoke test, no figures to publish");
  if (kv) {
    app->add_option(
        "--mooncake", o.mooncake,
        "A Python with mooncake-transfer-engine-non-cuda: Mooncake Store over tcp, too");
    CLI::Option* scale = app->add_flag(
        "--scale", o.scale,
        "Instead of the above: a node with very many values, and one with very many tenants");
    app->add_option("--scale-values", o.scale_values, "Values of 4 KiB")
        ->check(CLI::Range(std::uint64_t{1000}, std::uint64_t{100000000}))
        ->capture_default_str()
        ->needs(scale);
    app->add_option("--scale-tenants", o.scale_tenants, "Tenants; 0: without that part")
        ->check(CLI::Range(0u, 1000u))
        ->capture_default_str()
        ->needs(scale);
  }
  app->add_flag("--json", o.json, "Rows as JSON");
  app->add_flag("--quiet", o.quiet, "No progress");
  app->callback([&o, &run, kv] {
    o.kv = kv;
    run = [&o] { return run_bench(o); };
  });
}

void add_bench(CLI::App& root, BenchOptions& o, std::uint16_t& peer_port,
               std::function<int()>& run) {
  CLI::App* bench = root.add_subcommand("bench", "Measure against the alternatives, in one run")
                        ->require_subcommand(1);
  add_bench_door(*bench, o, false, "blob", "RDMA_GET, RDMA_SET and what one would use instead",
                 run);
  add_bench_door(*bench, o, true, "kv", "One-sided reads and what one would use instead", run);
  // The far side of the raw measurements, started by `bench blob` itself; group "" hides it.
  CLI::App* peer = bench->add_subcommand("peer", "")->group("");
  peer->add_option("port", peer_port)->required();
  peer->callback([&peer_port, &run] { run = [&peer_port] { return run_bench_peer(peer_port); }; });
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // tidy: allow signal a lost pipe is an error of that write
  CLI::App app{"Farlift puts large values straight into memory the reader registered."};
  app.name("farlift");
  app.footer(kFooter);
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* where, const CLI::Error& error) {
    return fmt::format("farlift: {}; see `{} --help`\n", error.what(), where->get_display_name());
  });
  UpOptions up;
  TransferOptions put;
  TransferOptions get;
  DemoOptions demo;
  std::string demo_size = "256m";
  NodeCommand node;
  VolumeCommand volume;
  S3Command s3;
  KvCommand kv;
  DoctorOptions doctor;
  BenchOptions bench;
  std::uint16_t bench_peer_port = 0;
  std::function<int()> run;
  add_up(app, up, run);
  add_demo(app, demo, demo_size, run);
  add_transfer(app, get, true, run);
  add_transfer(app, put, false, run);
  add_node(app, node, run);
  add_volume(app, volume, run);
  add_s3(app, s3, run);
  add_kv(app, kv, run);
  add_doctor(app, doctor, run);
  add_bench(app, bench, bench_peer_port, run);
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const auto named = [argv](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named)) {
    return report({kExitUsage, fmt::format("'{}' is no command; the commands are up, demo, get, "
                                           "put, node, kv, volume, s3, doctor and bench",
                                           argv[1])},
                  false);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return run();
}

#include "apps/stack.h"

#include "apps/console.h"
#include "apps/files.h"
#include "apps/private_node.h"
#include "apps/process.h"
#include "apps/server.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr std::size_t kStackFileMax = 16384;
constexpr int kStopLimitMs = 60000;

std::string stack_path(const std::string& directory) { return directory + "/farlift.json"; }

// Reads a member of the file that stack_json() wrote; no other JSON is expected there.
std::string member(const std::string& json, const std::string& name) {
  const std::string mark = "\"" + name + "\": ";
  std::size_t at = json.find(mark);
  if (at == std::string::npos) return "";
  at += mark.size();
  std::string out;
  if (json[at] != '"') return json.substr(at, json.find_first_of(",}", at) - at);
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\' && at + 1 < json.size()) ++at;
    out += json[at];
  }
  return out;
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > 100000000000u) return 0;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

Outcome<std::vector<std::pair<std::string, std::string>>> settings_of(
    const std::vector<std::string>& words, const char* option) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(kExitUsage, fmt::format("{} wants NAME=VALUE, not '{}'", option, word));
    }
    if (word.find('\n') != std::string::npos)
      return fail(kExitUsage, fmt::format("{}: line ends are not allowed", option));
    out.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return out;
}

Outcome<ServerOptions> server_options(const UpOptions& options, const std::string& directory) {
  ServerOptions out;
  out.directory = directory;
  out.port = options.port;
  out.bind = options.bind;
  out.unix_path = options.unix_path;
  out.password = options.password;
  out.keep_data = !options.no_save;
  const bool loopback = options.bind == "127.0.0.1" || options.bind == "::1";
  if (!loopback && options.password.empty()) {
    return fail(kExitUsage,
                fmt::format("--bind {} lets other hosts in; give --password too", options.bind));
  }
  auto server = settings_of(options.server_settings, "--set");
  if (!server) return fail(server.error());
  auto module = settings_of(options.module_settings, "--module-set");
  if (!module) return fail(module.error());
  out.server = std::move(*server);
  out.module = std::move(*module);
  if (!options.maxmemory.empty()) out.server.emplace_back("maxmemory", options.maxmemory);
  if (!options.max_object_size.empty())
    out.module.emplace_back("max-object-size", options.max_object_size);
  if (!options.segment_size.empty()) out.module.emplace_back("segment-size", options.segment_size);
  if (!options.provider.empty()) out.module.emplace_back("fabric-provider", options.provider);
  const std::string interfaces = options.interfaces.empty() && loopback ? "lo" : options.interfaces;
  if (!interfaces.empty()) out.module.emplace_back("fabric-interfaces", interfaces);
  return out;
}

void announce(const Stack& stack, const std::string& directory, const UpOptions& options,
              bool foreground) {
  if (options.json) {
    print(stack_json(stack, directory, false) + "\n");
    return;
  }
  say(options.quiet, fmt::format("farlift is up in {}", directory));
  say(options.quiet, fmt::format("  blob door   valkey at {}:{} (process {})", stack.host,
                                 stack.port, stack.server));
  say(options.quiet,
      fmt::format("  put, get    {0} put --dir {1} KEY FILE     {0} get --dir {1} KEY FILE",
                  how_to_call_us(), directory));
  if (stack.node_port != 0) {
    say(options.quiet, fmt::format("  kvcache     data node at {}:{}, tenant {}", stack.host,
                                   stack.node_port, stack.tenant));
    say(options.quiet,
        fmt::format("  put, get    {0} kv put --dir {1} KEY FILE     {0} kv get --dir {1} KEY FILE",
                    how_to_call_us(), directory));
  }
  say(options.quiet,
      fmt::format("  look        valkey-cli -h {} -p {} INFO largeobj", stack.host, stack.port));
  say(options.quiet, fmt::format("  stop        {} up --stop --dir {}{}", how_to_call_us(),
                                 directory, foreground ? "   (or Ctrl-C here)" : ""));
}

struct Supervised {
  std::unique_ptr<PrivateServer> server;
  std::unique_ptr<PrivateNode> node;  // null: none; ends first
  Stack stack;
};

Outcome<Supervised> bring_up(const UpOptions& options, const std::string& directory) {
  Outcome<ServerOptions> wanted = server_options(options, directory);
  if (!wanted) return fail(wanted.error());
  Outcome<std::unique_ptr<PrivateServer>> server = PrivateServer::start(*wanted);
  if (!server) return fail(server.error());
  Supervised out;
  out.server = std::move(*server);
  out.stack = Stack{options.bind.substr(0, options.bind.find(' ')),
                    out.server->port(),
                    options.unix_path,
                    options.password,
                    getpid(),
                    out.server->pid(),
                    0,
                    "",
                    ""};
  if (!options.no_node) {
    PrivateNodeOptions node;
    node.directory = directory;
    // Where others are let in, the node stays on this host: its own process serves the others.
    node.host = out.stack.host == "::1" ? "::1" : "127.0.0.1";
    node.valkey_port = out.server->port();
    node.password = options.password;
    node.quota = options.kv_quota;
    node.arena_size = options.kv_arena_size;
    Outcome<std::unique_ptr<PrivateNode>> started = PrivateNode::start(node);
    if (!started) return fail(started.error());
    out.node = std::move(*started);
    out.stack.node_port = out.node->port();
    out.stack.tenant = kPrivateTenant;
    out.stack.key_file = out.node->key_file();
  }
  Outcome<void> written =
      write_file(stack_path(directory), stack_json(out.stack, directory, true) + "\n");
  if (!written) return fail(written.error());
  return out;
}

// SIGINT, SIGTERM and SIGHUP as a descriptor; they no longer end the process.
UniqueFd stop_signals() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stops, s);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
  return UniqueFd(signalfd(-1, &stops, SFD_CLOEXEC));
}

// Until someone wants us to stop (0) or the server ends by itself (1).
int supervise(Supervised& up, const std::string& directory, const UniqueFd& signals) {
  pollfd watched[] = {{signals.get(), POLLIN, 0},
                      {up.server->child().pidfd(), POLLIN, 0},
                      {up.node != nullptr ? up.node->child().pidfd() : -1, POLLIN, 0}};
  while (poll(watched, 3, -1) < 0 && errno == EINTR) {
  }
  unlink(stack_path(directory).c_str());
  const bool asked = (watched[0].revents & POLLIN) != 0;
  if (asked) {
    if (up.node != nullptr) up.node->stop();
    up.server->stop();
    return kExitOk;
  }
  if (up.node != nullptr && (watched[2].revents & POLLIN) != 0) {
    const std::optional<int> ended = up.node->child().ended(std::chrono::seconds(1));
    up.server->stop();
    return report(
        Failure{kExitFailed, fmt::format("the data node {}: {}",
                                         ended ? describe_wait_status(*ended) : "stopped answering",
                                         up.node->complaint())},
        false);
  }
  const std::optional<int> ended = up.server->child().ended(std::chrono::seconds(1));
  return report(
      Failure{kExitFailed, fmt::format("valkey-server {}: {}",
                                       ended ? describe_wait_status(*ended) : "stopped answering",
                                       up.server->complaint())},
      false);
}

// The detached half: reports through `pipe`, one status byte and a text, then supervises.
[[noreturn]] void detached(const UpOptions& options, const std::string& directory, UniqueFd pipe) {
  setsid();
  const UniqueFd signals = stop_signals();
  const std::string log = directory + "/farlift.log";
  const UniqueFd out(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (out && nothing) {
    dup2(nothing.get(), 0);
    dup2(out.get(), 1);
    dup2(out.get(), 2);
  }
  int code = kExitOk;
  {
    Outcome<Supervised> up = bring_up(options, directory);
    const std::string text =
        up ? std::string(1, '\0')
           : std::string(1, static_cast<char>(up.error().exit_code)) + up.error().text;
    code = write(pipe.get(), text.data(), text.size()) < 0 ? kExitFailed : kExitOk;
    pipe.reset();
    if (up && code == kExitOk) code = supervise(*up, directory, signals);
  }
  _exit(code);
}

}  // namespace

std::string stack_json(const Stack& stack, const std::string& directory, bool with_password) {
  JsonObject out;
  out.integer("version", 1)
      .text("directory", directory)
      .text("host", stack.host)
      .integer("port", stack.port);
  if (!stack.unix_path.empty()) out.text("unix_path", stack.unix_path);
  if (with_password && !stack.password.empty()) out.text("password", stack.password);
  if (stack.node_port != 0) {
    out.integer("node_port", stack.node_port)
        .text("tenant", stack.tenant)
        .text("key_file", stack.key_file);
  }
  return out.integer("supervisor_pid", stack.supervisor).integer("valkey_pid", stack.server).str();
}

Outcome<Stack> read_stack(const std::string& directory) {
  Outcome<std::string> json = read_file(stack_path(directory), kStackFileMax);
  Stack stack;
  if (json) {
    stack.host = member(*json, "host");
    stack.port = static_cast<std::uint16_t>(number(member(*json, "port")));
    stack.unix_path = member(*json, "unix_path");
    stack.password = member(*json, "password");
    stack.node_port = static_cast<std::uint16_t>(number(member(*json, "node_port")));
    stack.tenant = member(*json, "tenant");
    stack.key_file = member(*json, "key_file");
    stack.supervisor = static_cast<pid_t>(number(member(*json, "supervisor_pid")));
    stack.server = static_cast<pid_t>(number(member(*json, "valkey_pid")));
  }
  // The lock tells whether it still runs: a process number may belong to somebody else by now.
  const UniqueFd lock(open((directory + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  const bool runs = lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
  if (!runs || stack.port == 0 || stack.supervisor <= 1) {
    return fail(kExitUnreachable,
                fmt::format("nothing runs in {0}; start it with `farlift up --detach --dir {0}`",
                            directory));
  }
  return stack;
}

Outcome<Stack> start_detached(const UpOptions& options) {
  Outcome<void> made = make_folder(options.directory);
  if (!made) return fail(made.error());
  Outcome<std::string> directory = absolute_path(options.directory);
  if (!directory) return fail(directory.error());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(kExitFailed, "cannot make a pipe");
  UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t pid = fork();
  if (pid < 0)
    return fail(kExitFailed, "cannot start a process: " + std::generic_category().message(errno));
  if (pid == 0) {
    mine.reset();
    detached(options, *directory, std::move(theirs));
  }
  theirs.reset();
  std::string text;
  char piece[4096];
  ssize_t got = 0;
  while ((got = read(mine.get(), piece, sizeof piece)) > 0)
    text.append(piece, static_cast<std::size_t>(got));
  if (!text.empty() && text[0] == '\0') return read_stack(*directory);
  waitpid(pid, nullptr, 0);
  return fail(text.empty() ? Failure{kExitFailed, "the detached process ended; see " + *directory +
                                                      "/farlift.log"}
                           : Failure{text[0], text.substr(1)});
}

int run_up(const UpOptions& options) {
  if (options.stop) return run_up_stop(options);
  if (options.status) return run_up_status(options);
  if (options.detach) {
    Outcome<Stack> stack = start_detached(options);
    if (!stack) return report(stack.error(), options.json);
    Outcome<std::string> directory = absolute_path(options.directory);
    announce(*stack, directory ? *directory : options.directory, options, false);
    return kExitOk;
  }
  Outcome<void> made = make_folder(options.directory);
  if (!made) return report(made.error(), options.json);
  Outcome<std::string> directory = absolute_path(options.directory);
  if (!directory) return report(directory.error(), options.json);
  const UniqueFd signals = stop_signals();
  Outcome<Supervised> up = bring_up(options, *directory);
  if (!up) return report(up.error(), options.json);
  announce(up->stack, *directory, options, true);
  return supervise(*up, *directory, signals);
}

int run_up_stop(const UpOptions& options) {
  Outcome<Stack> stack = read_stack(options.directory);
  if (!stack) return report(stack.error(), options.json);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, stack->supervisor, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  if (!process || kill(stack->supervisor, SIGTERM) != 0) {
    return report(Failure{kExitFailed, fmt::format("cannot stop process {}: {}", stack->supervisor,
                                                   std::generic_category().message(errno))},
                  options.json);
  }
  if (poll(&ended, 1, kStopLimitMs) <= 0) {
    return report(
        Failure{kExitFailed, fmt::format("process {} did not stop within 60 s", stack->supervisor)},
        options.json);
  }
  if (options.json) print(JsonObject().boolean("stopped", true).str() + "\n");
  if (!options.json) {
    say(options.quiet,
        fmt::format("stopped; what it stored, and its log, stay in {} until you remove it",
                    options.directory));
  }
  return kExitOk;
}

int run_up_status(const UpOptions& options) {
  Outcome<Stack> stack = read_stack(options.directory);
  if (!stack) return report(stack.error(), options.json);
  Outcome<std::string> directory = absolute_path(options.directory);
  announce(*stack, directory ? *directory : options.directory, options, false);
  return kExitOk;
}

}  // namespace farlift::apps

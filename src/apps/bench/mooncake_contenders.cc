// Mooncake Store over tcp, driven by mooncake.py: what serving stacks would use for the same
// values.
#include "apps/bench/contender.h"
#include "apps/bench/mooncake_script.h"
#include "apps/bench/socket.h"
#include "apps/files.h"
#include "apps/server.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <poll.h>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr std::chrono::milliseconds kStartLimit(30000);
constexpr std::size_t kLineMax = std::size_t{64} << 20;

// A script process and the connection over which it is told what to do.
struct Talker {
  Child child;
  Socket socket;
  std::string rest{};  // read beyond the last line

  Outcome<std::string> line() {
    std::array<std::byte, 65536> some{};
    std::size_t end = 0;
    while ((end = rest.find('\n')) == std::string::npos) {
      auto got = socket.receive_some(some);
      if (!got) return fail(got.error());
      rest.append(reinterpret_cast<const char*>(some.data()), *got);
      if (rest.size() > kLineMax) return fail(kExitFailed, "mooncake: an endless line");
    }
    std::string out = rest.substr(0, end);
    rest.erase(0, end + 1);
    if (out.starts_with("error ")) return fail(kExitFailed, "mooncake: " + out.substr(6));
    return out;
  }
  Outcome<std::string> ask(const std::string& command) {
    if (auto sent = socket.send_all(command + "\n"); !sent) return fail(sent.error());
    return line();
  }
};

}  // namespace

struct MooncakeStore {
  Child master;
  Talker lender;
  Talker client;
};

namespace {

bool accepts_within(const UniqueFd& listener, Child& child, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kStep(50);
  for (auto waited = std::chrono::milliseconds(0); waited < limit; waited += kStep) {
    pollfd one{listener.get(), POLLIN, 0};
    if (::poll(&one, 1, static_cast<int>(kStep.count())) == 1) return true;
    if (child.ended(std::chrono::milliseconds(0))) return false;
  }
  return false;
}

std::string end_of(const std::string& log) {
  Outcome<std::string> text = read_file(log, std::size_t{1} << 20);
  if (!text) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return text->substr(text->rfind('\n') + 1);
}

Outcome<Talker> start_script(const std::string& python, const std::string& role,
                             const std::string& folder, std::uint16_t master,
                             std::uint64_t largest) {
  std::uint16_t port = 0;
  Outcome<UniqueFd> listener = listen_on_loopback(&port);
  if (!listener) return fail(listener.error());
  const std::string log = fmt::format("{}/mooncake-{}.log", folder, role);
  Outcome<Child> child =
      Child::start({{python, "-c", kMooncakeScript, role, fmt::format("{}", port),
                     fmt::format("{}", master), fmt::format("{}", largest)},
                    log,
                    folder});
  if (!child) return fail(child.error());
  if (!accepts_within(*listener, *child, kStartLimit))
    return fail(kExitFailed, fmt::format("{} cannot run it: {}", python, end_of(log)));
  Outcome<Socket> socket = Socket::accept(*listener);
  if (!socket) return fail(socket.error());
  Talker talker{std::move(*child), std::move(*socket)};
  Outcome<std::string> ready = talker.line();
  if (!ready) return fail(ready.error());
  return talker;
}

// The master lies beside the Python of its environment.
Outcome<Child> start_master(const std::string& python, const std::string& folder,
                            std::uint16_t* port) {
  const std::string program = python.substr(0, python.rfind('/') + 1) + "mooncake_master";
  if (access(program.c_str(), X_OK) != 0) return fail(kExitFailed, program + " is not there");
  Outcome<std::uint16_t> rpc = free_port("127.0.0.1");
  Outcome<std::uint16_t> metrics = free_port("127.0.0.1");
  if (!rpc || !metrics) return fail(kExitFailed, "no free ports");
  *port = *rpc;
  return Child::start(
      {{program, fmt::format("--port={}", *rpc), fmt::format("--metrics_port={}", *metrics),
        "--rpc_address=127.0.0.1", "--enable_metric_reporting=false"},
       folder + "/mooncake-master.log",
       folder});
}

Outcome<void> wait_for_port(Child& child, std::uint16_t port) {
  constexpr std::chrono::milliseconds kStep(50);
  for (auto waited = std::chrono::milliseconds(0); waited < kStartLimit; waited += kStep) {
    if (Socket::connect(port)) return {};
    if (child.ended(kStep)) return fail(kExitFailed, "mooncake_master ended at once");
  }
  return fail(kExitFailed, "mooncake_master does not listen");
}

Outcome<std::shared_ptr<MooncakeStore>> start_all(const std::string& python,
                                                  const std::string& folder,
                                                  std::uint64_t largest) {
  std::uint16_t port = 0;
  Outcome<Child> master = start_master(python, folder, &port);
  if (!master) return fail(master.error());
  if (auto up = wait_for_port(*master, port); !up) return fail(up.error());
  Outcome<Talker> lender = start_script(python, "store", folder, port, largest);
  if (!lender) return fail(lender.error());
  Outcome<Talker> client = start_script(python, "client", folder, port, largest);
  if (!client) return fail(client.error());
  return std::make_shared<MooncakeStore>(
      MooncakeStore{std::move(*master), std::move(*lender), std::move(*client)});
}

class MooncakeContender final : public Contender {
 public:
  MooncakeContender(const char* what, const char* command, std::shared_ptr<MooncakeStore> store)
      : Contender({what, "", "tcp", false}, store->lender.child.pid()),
        command_(command),
        store_(std::move(store)) {}

  bool fits(const Scene& scene) const override { return scene.in_flight == 1; }
  Outcome<void> prepare(const Scene& scene) override {
    return done(fmt::format("prepare {}", scene.size));
  }
  Outcome<void> op(unsigned) override { return done(fmt::format("{} 0", command_)); }
  void release() override {}

  Outcome<std::optional<std::vector<double>>> run(double seconds) override {
    Outcome<std::string> answer = store_->client.ask(fmt::format("{} {}", command_, seconds));
    if (!answer) return fail(answer.error());
    std::vector<double> times;
    const char* at = answer->data();
    const char* const end = at + answer->size();
    while (at < end) {
      double one = 0;
      const auto [next, error] = std::from_chars(at, end, one);
      if (error != std::errc()) return fail(kExitFailed, "mooncake: not a list of times");
      times.push_back(one);
      at = next + (next < end ? 1 : 0);
    }
    if (times.empty()) return fail(kExitFailed, "mooncake: no transfers");
    if (auto checked = done("check"); !checked) return fail(checked.error());
    return std::optional(std::move(times));
  }
  double cpu_here_s() const override { return cpu_seconds(store_->client.child.pid()).value_or(0); }
  double cpu_there_s() const override {
    return cpu_seconds(other()).value_or(0) + cpu_seconds(store_->master.pid()).value_or(0);
  }

 private:
  Outcome<void> done(const std::string& command) {
    Outcome<std::string> answer = store_->client.ask(command);
    if (!answer) return fail(answer.error());
    return {};
  }
  const std::string command_;
  const std::shared_ptr<MooncakeStore> store_;
};

}  // namespace

std::shared_ptr<MooncakeStore> start_mooncake(const std::string& python, const std::string& folder,
                                              std::uint64_t largest, std::string& why) {
  Outcome<std::string> program = absolute_path(python.substr(0, python.rfind('/') + 1));
  const std::string path = program ? *program + "/" + python.substr(python.rfind('/') + 1) : python;
  Outcome<std::shared_ptr<MooncakeStore>> store = start_all(path, folder, largest);
  if (store) return *store;
  why = store.error().text;
  return nullptr;
}

void add_mooncake_contenders(Contenders& out, const std::shared_ptr<MooncakeStore>& store) {
  out.push_back(std::make_unique<MooncakeContender>("mooncake.get", "get", store));
  out.push_back(std::make_unique<MooncakeContender>("mooncake.put", "put", store));
}

}  // namespace farlift::apps

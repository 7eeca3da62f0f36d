// The peer process of the conformance suite: one command a line on standard input, one answer a
// line ("ok ..." or "error ...") on standard output.
//
//   open                                   domain and target; answers the address region LENGTH
//   ACCESS                   answers index, key, addr close INDEX | set INDEX BYTE | is INDEX BYTE
//   | first INDEX | crc INDEX start write|read ADDRESS KEY ADDR LENGTH SEED COUNT      operations
//   one after the other, on a thread result                                 joins it: number of
//   successes, code of the first failure (0: none)
#include "core/digest/crc32c.h"
#include "core/fabric/conformance_harness.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

namespace farlift::fabric::conformance {
namespace {

struct Region {
  std::vector<std::byte> memory;
  std::unique_ptr<Registration> registration;
};

class Peer {
 public:
  explicit Peer(const ConformanceProvider& provider) : provider_(provider) {}
  ~Peer() {
    if (thread_.joinable()) thread_.join();
  }
  std::string run(const std::string& line);

 private:
  std::string open();
  std::string region(std::istringstream& in);
  std::string on_region(const std::string& verb, std::istringstream& in);
  std::string start(std::istringstream& in);
  void initiate(Initiator& initiator, Operation operation, std::uint64_t count);

  const ConformanceProvider& provider_;
  std::unique_ptr<Domain> domain_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::unique_ptr<TargetEndpoint> target_;
  std::unique_ptr<Buffer> local_;
  std::unique_ptr<Initiator> initiator_;
  std::thread thread_;
  std::uint64_t successes_ = 0;
  int failure_ = 0;
};

std::string Peer::open() {
  auto domain = provider_.open();
  if (!domain.ok()) return "error " + domain.error().describe();
  domain_ = *std::move(domain);
  auto target = domain_->open_target({});
  if (!target.ok()) return "error " + target.error().describe();
  target_ = *std::move(target);
  return "ok " + target_->address().hex();
}

std::string Peer::region(std::istringstream& in) {
  std::size_t length = 0;
  unsigned access = 0;
  in >> length >> access;
  auto region = std::make_unique<Region>();
  region->memory.resize(length);
  auto registered = domain_->register_memory({region->memory}, static_cast<Access>(access));
  if (!registered.ok()) return "error " + registered.error().describe();
  region->registration = *std::move(registered);
  const Registration& r = *region->registration;
  regions_.push_back(std::move(region));
  return "ok " + std::to_string(regions_.size() - 1) + " " + std::to_string(r.key().raw()) + " " +
         std::to_string(r.addr().raw());
}

std::string Peer::on_region(const std::string& verb, std::istringstream& in) {
  std::size_t index = 0;
  int value = 0;
  in >> index >> value;
  if (index >= regions_.size()) return "error index";
  Region& r = *regions_[index];
  if (verb == "close") {  // as the fence mode says it must be
    if (domain_->info().fence_mode != FenceMode::mr && !target_->close().ok()) return "error close";
    return r.registration->close().ok() ? "ok" : "error close";
  }
  if (verb == "set") {
    std::memset(r.memory.data(), value, r.memory.size());
    return "ok";
  }
  if (verb == "is") {
    return all_are(r.memory, value) ? "ok 1" : "ok 0";
  }
  if (verb == "first") return "ok " + std::to_string(peek(r.memory.data()));
  if (verb == "crc") return "ok " + std::to_string(digest::crc32c(r.memory).raw());
  return "error verb";
}

std::string Peer::start(std::istringstream& in) {
  std::string kind, address;
  std::uint64_t key = 0, addr = 0, length = 0, seed = 0, count = 0;
  in >> kind >> address >> key >> addr >> length >> seed >> count;
  InitiatorOptions options;
  options.connect_deadline = kLong;
  auto initiator = domain_->open_initiator(options);
  if (!initiator.ok()) return "error " + initiator.error().describe();
  initiator_ = *std::move(initiator);
  const auto peer = initiator_->add_peer(address_from_hex(address));
  if (!peer.ok()) return "error " + peer.error().describe();
  local_ = std::make_unique<Buffer>(*domain_, length);
  local_->fill(seed);
  const Operation operation{kind == "read" ? OpKind::read : OpKind::write,
                            *peer,
                            RKey(key),
                            RemoteAddr(addr),
                            local_->bytes(),
                            local_->registration(),
                            1};
  thread_ = std::thread([this, operation, count] { initiate(*initiator_, operation, count); });
  return "ok";
}

void Peer::initiate(Initiator& initiator, Operation operation, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count && failure_ == 0; ++i) {
    Status status = initiator.post(operation);
    Completion done;
    while (status.ok() && initiator.poll({&done, 1}) == 0) initiator.wait(1000);
    if (status.ok()) status = done.status;
    if (status.ok()) {
      ++successes_;
    } else {
      failure_ = static_cast<int>(status.code());
    }
  }
}

std::string Peer::run(const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  if (verb == "open") return open();
  if (!domain_) return "error not open";
  if (verb == "region") return region(in);
  if (verb == "start") return start(in);
  if (verb == "result") {
    if (thread_.joinable()) thread_.join();
    return "ok " + std::to_string(successes_) + " " + std::to_string(failure_);
  }
  return on_region(verb, in);
}

}  // namespace

int peer_main(const ConformanceProvider& provider) {
  Peer peer(provider);
  for (std::string line; std::getline(std::cin, line);) std::cout << peer.run(line) << std::endl;
  return 0;
}

namespace {

std::vector<ConformanceProvider> with_processes() {
  auto providers = conformance_providers();
  std::erase_if(providers, [](const ConformanceProvider& p) { return !p.separate_processes; });
  return providers;
}

std::string name_of(const ::testing::TestParamInfo<ConformanceProvider>& p) { return p.param.name; }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Provider, FabricConformance, ::testing::ValuesIn(conformance_providers()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Provider, FabricProcessConformance, ::testing::ValuesIn(with_processes()),
                         name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricProcessConformance);

}  // namespace farlift::fabric::conformance

int main(int argc, char** argv) {
  using farlift::fabric::conformance_providers;
  const std::string flag = "--fabric-peer=";
  if (argc > 1 && std::string(argv[1]).starts_with(flag)) {
    for (const auto& provider : conformance_providers()) {
      if (provider.name == argv[1] + flag.size())
        return farlift::fabric::conformance::peer_main(provider);
    }
    std::fprintf(stderr, "no provider %s\n", argv[1]);
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// What the checkers see of the fabric and the directory: wrappers that forward everything and keep
// note of registrations, endpoints, publishes and resolves.
//
// Invariants: nothing is changed on the way, except that close() of a read registration may be made
//             to fail (then it stays open, as a card would leave it).
// Threads:    one. Ownership: the Registry and the Ledger outlive what is wrapped.
// Errors:     as the wrapped.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/fabric.h"
#include "kvcache/control/directory.h"

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tests/sim/ledger.h"

namespace farlift::kv::simulation {

struct Held {  // an open registration
  std::string party;
  std::uint64_t life = 0;  // of the party
  std::uint64_t domain = 0;
  std::size_t rail = 0;
  std::span<const std::byte> bytes;
  fabric::Access access = fabric::Access::local;
  RKey key;
  bool close_failed = false;
};

struct Registry {
  std::list<Held> open;
  struct Owner {
    std::string party;
    std::uint64_t life = 0;
    fabric::Address address;
    bool open = true;
  };
  std::map<std::string, Owner> endpoints;  // by address, also closed ones
  std::uint32_t close_fails = 0;           // out of 1000
  Prng prng{1};
  std::uint64_t next_domain = 1;
};

struct Wearer {  // who a domain belongs to
  std::string party;
  std::uint64_t life = 0;
  std::size_t rail = 0;
  bool may_fail = false;
};
std::unique_ptr<fabric::Domain> watch(std::unique_ptr<fabric::Domain> domain, Registry& registry,
                                      Wearer wearer);
std::string bytes_of(const fabric::Address& address);

// Of a node: publishes and unpublishes become records.
struct NodeSight {
  std::function<const std::byte*(const Location&)> memory;  // of the header; null: not there
};
std::unique_ptr<Directory> watch_node(std::unique_ptr<Directory> inner, Ledger& ledger,
                                      NodeSight sight);

// Of a client: which pairs it was told, and when it had asked for them.
struct Told {
  std::map<Bytes, std::map<std::pair<Bytes, Bytes>, Instant>> pairs;  // key → (descriptor, tag)
  std::vector<Bytes> manifests;
  bool in_a_manifest(const Bytes& descriptor, const Bytes& tag) const;
};
std::unique_ptr<Directory> watch_client(std::unique_ptr<Directory> inner, Told& told,
                                        const Clock& clock);

}  // namespace farlift::kv::simulation

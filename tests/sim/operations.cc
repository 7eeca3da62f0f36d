// What the clients of a world do, and what they make of the results (P1, P13).
#include "core/base/assert.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/checks.h"
#include "tests/sim/world.h"

namespace farlift::kv::simulation {

using namespace std::chrono_literals;

namespace {

// Not what a value is made of, nor what was there before: two bytes in a row are equal.
void fill(Area& area, std::uint64_t with) {
  const auto inner = area.inner();
  if (!inner.empty()) std::memset(inner.data(), static_cast<int>(with & 0xFF), inner.size());
}

}  // namespace

void World::start_operations() {
  for (const auto& client : clients_) {
    for (Lane& lane : client->lanes) {
      if (lane.busy || clock_.now() < lane.due || operations_ >= plan_.operations) continue;
      ++operations_;
      start_operation(*client, lane);
    }
  }
}

void World::start_operation(ClientParty& client, Lane& lane) {
  checks_->lane_quiet(client, lane);
  const std::uint64_t what = prng_.below(100);
  if (what < 40) return start_put(client, lane);
  if (what < 46 && plan_.deletes) return start_remove(client, lane);
  if (what < 54) return start_look(client, lane);
  std::vector<GetRequest> requests;
  const std::size_t n = what < 80 ? 1 : 2;
  for (std::size_t i = 0; i < n; ++i) {
    GetRequest request;
    request.key = key(prng_.below(plan_.keys));
    const auto inner = lane.areas[i].inner();
    request.dest = prng_.chance(1, 8) ? inner.first(prng_.below(inner.size() + 1)) : inner;
    request.mode = prng_.chance(1, 2) ? ReadMode::framed : ReadMode::payload_only;
    request.min_rev = prng_.chance(1, 10) ? static_cast<std::uint32_t>(prng_.below(4)) : 0;
    requests.push_back(std::move(request));
  }
  start_gets(client, lane, std::move(requests), [](const GetResult&) {});
}

void World::start_put(ClientParty& client, Lane& lane) {
  const Bytes bytes = value(plan_.lengths[prng_.below(plan_.lengths.size())]);
  PutRequest request;
  request.key = key(prng_.below(plan_.keys));
  const std::uint64_t mode = prng_.below(4);
  request.mode = mode == 0   ? PutMode::if_absent
                 : mode == 1 ? PutMode::if_version
                             : PutMode::replace;
  if (request.mode == PutMode::if_version && !prng_.chance(1, 5)) {
    request.expected = latest_[{client.tenant, request.key}];
  }
  request.push = plan_.pushes && plan_.fence == fabric::FenceMode::mr && prng_.chance(1, 3);
  start_put(client, lane, std::move(request), bytes, [](const PutResult&) {});
}

void World::start_put(ClientParty& client, Lane& lane, PutRequest request, const Bytes& bytes,
                      PutDone done) {
  Area& area = lane.source();
  ledger_.wrote({client.tenant, request.key}, bytes);
  std::ranges::copy(bytes, area.inner().begin());
  request.source = area.inner().first(bytes.size());
  area.cap = area.inner().size();
  area.busy = lane.busy = true;
  area.quiet.clear();
  lane.doing = "put " + text_of({client.tenant, request.key});
  trace([&] {
    return client.name + " " + lane.doing + " mode " +
           std::to_string(static_cast<int>(request.mode)) + (request.push ? " push " : " pull ") +
           std::to_string(bytes.size());
  });
  const Version expected = request.mode == PutMode::if_version ? request.expected : Version();
  client.poke().put(std::move(request), [this, &client, &lane, expected, key = request.key,
                                         life = client.life,
                                         done = std::move(done)](const PutResult& result) {
    if (life != client.life) return;
    Area& from = lane.source();
    from.busy = lane.busy = false;
    fill(from, ++next_value_);  // the caller uses its memory at once
    const auto inner = from.inner();
    from.quiet.assign(inner.begin(), inner.end());
    lane.due =
        clock_.now() + Duration(prng_.below(static_cast<std::uint64_t>(plan_.think_max.count())));
    count("put " + std::string(outcome_name(result.outcome)));
    trace([&] {
      return client.name + " " + lane.doing + ": " + std::string(outcome_name(result.outcome)) +
             " rev " + std::to_string(result.version.rev());
    });
    heard_ = heard_ * 31 + static_cast<std::uint64_t>(result.outcome);
    if (result.outcome == Outcome::ok && !expected.none() &&
        result.version.rev() != expected.rev() + 1) {
      ledger_.fail("C: the revision does not follow the one that was expected");
    }
    if (!result.version.none()) latest_[{client.tenant, key}] = result.version;
    done(result);
  });
}

void World::start_gets(ClientParty& client, Lane& lane, std::vector<GetRequest> requests,
                       GetDone each) {
  ASSERT(requests.size() < Lane::kAreas);
  lane.busy = true;
  lane.doing = "get";
  std::vector<std::pair<ReadMode, std::uint32_t>> modes;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Area& area = lane.areas[i];
    area.busy = true;
    area.key = requests[i].key;
    area.cap = requests[i].dest.size();
    area.fill = ++next_value_;
    area.began = client.clock.now();
    area.quiet.clear();
    fill(area, area.fill);
    modes.emplace_back(requests[i].mode, requests[i].min_rev);
    lane.doing += " " + text_of({client.tenant, area.key});
  }
  trace([&] { return client.name + " " + lane.doing; });
  client.poke().mget(
      std::move(requests), [this, &client, &lane, modes, life = client.life,
                            each = std::move(each)](const std::vector<GetResult>& results) {
        if (life != client.life) return;
        lane.busy = false;
        lane.due = clock_.now() +
                   Duration(prng_.below(static_cast<std::uint64_t>(plan_.think_max.count())));
        if (results.size() != modes.size()) ledger_.fail("mget: a result for each key");
        for (std::size_t i = 0; i < results.size() && i < modes.size(); ++i) {
          finish_get(client, lane.areas[i], results[i], modes[i].first, modes[i].second);
          each(results[i]);
        }
      });
}

void World::finish_get(ClientParty& client, Area& area, const GetResult& result, ReadMode mode,
                       std::uint32_t min_rev) {
  const Name name(client.tenant, area.key);
  const auto inner = area.inner();
  area.busy = false;
  area.quiet.assign(inner.begin(), inner.end());
  count("get " + std::string(outcome_name(result.outcome)));
  trace([&] {
    return client.name + " got " + text_of(name) +
           (mode == ReadMode::framed ? " framed: " : " payload: ") +
           std::string(outcome_name(result.outcome)) + " rev " +
           std::to_string(result.version.rev());
  });
  heard_ = heard_ * 31 + static_cast<std::uint64_t>(result.outcome) + result.version.rev();
  if (result.outcome != Outcome::ok) return;
  latest_[name] = result.version;
  if (result.length.raw() > area.cap) return ledger_.fail("P1: ok and longer than the destination");
  if (result.version.rev() < min_rev) return ledger_.fail("P1: ok below min_rev");
  const auto got = inner.first(result.length.raw());
  ledger_.check_result(name, result.version, Bytes(got.begin(), got.end()));
}

void World::start_remove(ClientParty& client, Lane& lane) {
  const Bytes name = key(prng_.below(plan_.keys));
  std::optional<Version> version;
  if (prng_.chance(1, 3)) version = latest_[{client.tenant, name}];
  lane.busy = true;
  lane.doing = "remove " + text_of({client.tenant, name});
  trace([&] { return client.name + " " + lane.doing; });
  client.poke().remove(
      name, version, [this, &client, &lane, life = client.life](Client::Removed r) {
        if (life != client.life) return;
        lane.busy = false;
        lane.due = clock_.now() +
                   Duration(prng_.below(static_cast<std::uint64_t>(plan_.think_max.count())));
        count("remove " + std::string(outcome_name(r.outcome)));
        trace([&] {
          return client.name + " " + lane.doing + ": " + std::string(outcome_name(r.outcome));
        });
      });
}

void World::start_look(ClientParty& client, Lane& lane) {
  std::vector<Bytes> keys{key(prng_.below(plan_.keys)), key(prng_.below(plan_.keys))};
  lane.busy = true;
  lane.doing = "exists";
  const auto over = [this, &client, &lane, life = client.life] {
    if (life != client.life) return;
    lane.busy = false;
    lane.due =
        clock_.now() + Duration(prng_.below(static_cast<std::uint64_t>(plan_.think_max.count())));
  };
  switch (prng_.below(4)) {
    case 0:
      lane.doing = "write_group";
      return client.poke().write_group("g", prng_.below(9), keys,
                                       [over](const Client::Group&) { over(); });
    case 1:
      lane.doing = "read_group";
      return client.poke().read_group("g", [over](const Client::Group&) { over(); });
    case 2:
      lane.doing = "stat";
      return client.poke().stat(keys[0], [over](const GetResult&) { over(); });
    default:
      return client.poke().exists(keys, [over](const std::vector<bool>&) { over(); });
  }
}

PutResult World::put(ClientParty& client, std::size_t lane, const Bytes& key, const Bytes& value,
                     PutMode mode, Version expected) {
  const auto result = std::make_shared<std::optional<PutResult>>();
  PutRequest request;
  request.key = key;
  request.mode = mode;
  request.expected = expected;
  start_put(client, client.lanes[lane], std::move(request), value,
            [result](const PutResult& r) { *result = r; });
  if (!until([&] { return result->has_value(); }, 300s)) ledger_.fail("L1: a put is not reported");
  return result->value_or(PutResult{});
}

GetResult World::get(ClientParty& client, std::size_t lane, const Bytes& key, ReadMode mode) {
  const auto result = std::make_shared<std::optional<GetResult>>();
  GetRequest request;
  request.key = key;
  request.mode = mode;
  request.dest = client.lanes[lane].areas[0].inner();
  start_gets(client, client.lanes[lane], {request}, [result](const GetResult& r) { *result = r; });
  if (!until([&] { return result->has_value(); }, 300s)) ledger_.fail("L1: a get is not reported");
  return result->value_or(GetResult{});
}

Outcome World::remove(ClientParty& client, const Bytes& key) {
  const auto outcome = std::make_shared<std::optional<Outcome>>();
  client.poke().remove(key, {}, [outcome](Client::Removed r) { *outcome = r.outcome; });
  if (!until([&] { return outcome->has_value(); }, 300s)) {
    ledger_.fail("L1: a remove is not reported");
  }
  return outcome->value_or(Outcome::control_down);
}

}  // namespace farlift::kv::simulation

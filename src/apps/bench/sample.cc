#include "apps/bench/sample.h"

#include "apps/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace farlift::apps {

namespace {

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

std::string name_of(const Label& label) {
  std::string out = label.what;
  if (!label.lane.empty()) out += " " + label.lane;
  if (label.provider == "tcp") out += " libfabric";
  if (label.what.starts_with("blob.rdma")) out += label.verified ? ", verified" : "";
  return out;
}

const Row* find(const std::vector<Row>& rows, std::uint64_t size, unsigned in_flight,
                const std::string& what, const std::string& lane = "",
                const std::string& provider = "", bool verified = false) {
  for (const Row& row : rows) {
    if (row.size == size && row.in_flight == in_flight && row.label.what == what &&
        row.label.lane == lane && row.label.verified == verified &&
        (provider.empty() || row.label.provider == provider)) {
      return &row;
    }
  }
  return nullptr;
}

std::string ratio(double value, const Row* to) {
  return to == nullptr || to->gb_per_s <= 0 ? "" : fmt::format("{:.2f}", value / to->gb_per_s);
}

class Goals {
 public:
  explicit Goals(const std::vector<Row>& rows) : rows_(rows) {}

  void add(const std::string& what, std::uint64_t size, double reached, double wanted,
           bool at_most = false) {
    const bool met = at_most ? reached <= wanted : reached >= wanted;
    table_.add({what, human_bytes(size),
                fmt::format("{} {:.2f}", at_most ? "at most" : "at least", wanted),
                fmt::format("{:.2f}", reached), met ? "yes" : "no"});
    any_ = true;
  }
  double better(std::uint64_t size, const char* a, const char* b) const {
    const Row* x = find(rows_, size, 1, a);
    const Row* y = find(rows_, size, 1, b);
    return std::max(x == nullptr ? 0 : x->gb_per_s, y == nullptr ? 0 : y->gb_per_s);
  }
  std::string text() const { return any_ ? table_.text() : ""; }

 private:
  const std::vector<Row>& rows_;
  Table table_{{"goal, one in flight", "size", "wanted", "reached", "met"}};
  bool any_ = false;
};

void judge_rdma(Goals& goals, const std::vector<Row>& rows, std::uint64_t size,
                const std::string& lane) {
  const Row* plain = find(rows, size, 1, "blob.rdma_get", lane, "soft", false);
  const Row* checked = find(rows, size, 1, "blob.rdma_get", lane, "soft", true);
  const Row* get = find(rows, size, 1, "valkey.get");
  const Row* raw = find(rows, size, 1, "raw_tcp");
  const bool host = lane == "host";
  if (plain != nullptr && size >= (1u << 20)) {
    const double best = host ? goals.better(size, "process_vm_readv", "shared_mapping")
                             : goals.better(size, "raw_tcp", "libfabric.push");
    if (best > 0) {
      goals.add(lane + (host ? " GET to the better of process_vm_readv, shared mapping"
                             : " GET to the better of raw stream, libfabric push"),
                size, plain->gb_per_s / best, host ? 0.8 : 1.0);
    }
  }
  if (plain != nullptr && checked != nullptr && plain->gb_per_s > 0) {
    goals.add(lane + " GET verified to unverified", size, checked->gb_per_s / plain->gb_per_s,
              0.75);
  }
  if (checked == nullptr || get == nullptr || get->gb_per_s <= 0) return;
  constexpr std::pair<std::uint64_t, std::pair<double, double>> kWanted[] = {
      {1u << 20, {1.5, 3}}, {4u << 20, {2, 4}}, {16u << 20, {3, 6}}, {64u << 20, {6, 12}}};
  for (const auto& [at, wanted] : kWanted) {
    if (at == size) {
      goals.add(lane + " GET verified to plain GET", size, checked->gb_per_s / get->gb_per_s,
                host ? wanted.second : wanted.first);
    }
  }
  goals.add(lane + " CPU per GB to plain GET's", size, checked->cpu_s_per_gb / get->cpu_s_per_gb,
            1.0, true);
  if (size == 65536 && raw != nullptr && raw->p50_us > 0) {
    goals.add(lane + " p50 to the raw stream's round trip", size, checked->p50_us / raw->p50_us,
              2.0, true);
    goals.add(lane + " p50 to plain GET's", size, checked->p50_us / get->p50_us, 1.0, true);
  }
}

std::vector<std::pair<std::uint64_t, unsigned>> groups_of(const std::vector<Row>& rows) {
  std::vector<std::pair<std::uint64_t, unsigned>> out;
  for (const Row& row : rows) {
    const std::pair<std::uint64_t, unsigned> one(row.size, row.in_flight);
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
  }
  return out;
}

}  // namespace

Row summarise(const Label& label, const Scene& scene, const std::vector<Sample>& samples) {
  Row row;
  row.label = label;
  row.size = scene.size;
  row.in_flight = scene.in_flight;
  std::vector<double> rates;
  std::vector<double> latencies;
  double bytes = 0;
  for (const Sample& sample : samples) {
    rates.push_back(static_cast<double>(sample.bytes) / sample.seconds / 1e9);
    latencies.insert(latencies.end(), sample.latencies_us.begin(), sample.latencies_us.end());
    bytes += static_cast<double>(sample.bytes);
    row.cpu_here_s_per_gb += sample.cpu_here_s;
    row.cpu_there_s_per_gb += sample.cpu_there_s;
  }
  row.transfers = latencies.size();
  row.gb_per_s = quantile(rates, 0.5);
  row.gb_per_s_low = *std::min_element(rates.begin(), rates.end());
  row.gb_per_s_high = *std::max_element(rates.begin(), rates.end());
  row.p50_us = quantile(latencies, 0.5);
  row.p99_us = quantile(latencies, 0.99);
  row.cpu_here_s_per_gb /= bytes / 1e9;
  row.cpu_there_s_per_gb /= bytes / 1e9;
  row.cpu_s_per_gb = row.cpu_here_s_per_gb + row.cpu_there_s_per_gb;
  return row;
}

std::string rows_json(const std::vector<Row>& rows) {
  std::vector<std::string> items;
  items.reserve(rows.size());
  for (const Row& row : rows) {
    JsonObject item;
    item.text("what", row.label.what)
        .text("lane", row.label.lane)
        .text("provider", row.label.provider)
        .integer("size", static_cast<std::int64_t>(row.size))
        .integer("in_flight", row.in_flight)
        .boolean("verified", row.label.verified)
        .number("gb_per_s", row.gb_per_s)
        .number("gb_per_s_low", row.gb_per_s_low)
        .number("gb_per_s_high", row.gb_per_s_high)
        .number("p50_us", row.p50_us)
        .number("p99_us", row.p99_us)
        .number("cpu_s_per_gb", row.cpu_s_per_gb)
        .number("cpu_client_s_per_gb", row.cpu_here_s_per_gb)
        .number("cpu_server_s_per_gb", row.cpu_there_s_per_gb)
        .integer("transfers", static_cast<std::int64_t>(row.transfers));
    for (const auto& [name, value] : row.more) item.number(name, value);
    items.push_back(item.str());
  }
  return json_list(items, true);
}

std::string rows_table(const std::vector<Row>& rows) {
  std::string out;
  for (const auto& [size, in_flight] : groups_of(rows)) {
    const Row* get = find(rows, size, in_flight, "valkey.get");
    const Row* raw = find(rows, size, in_flight, "raw_tcp");
    Table table({"what", "GB/s", "low..high", "p50 us", "p99 us", "CPU s/GB", "client", "server",
                 "x GET", "x raw"});
    for (const Row& row : rows) {
      if (row.size != size || row.in_flight != in_flight) continue;
      table.add({name_of(row.label), fmt::format("{:.2f}", row.gb_per_s),
                 fmt::format("{:.2f}..{:.2f}", row.gb_per_s_low, row.gb_per_s_high),
                 fmt::format("{:.0f}", row.p50_us), fmt::format("{:.0f}", row.p99_us),
                 fmt::format("{:.2f}", row.cpu_s_per_gb),
                 fmt::format("{:.2f}", row.cpu_here_s_per_gb),
                 fmt::format("{:.2f}", row.cpu_there_s_per_gb), ratio(row.gb_per_s, get),
                 ratio(row.gb_per_s, raw)});
    }
    out += fmt::format("{}, {} in flight\n\n{}\n", human_bytes(size), in_flight, table.text());
  }
  return out;
}

std::string goals_table(const std::vector<Row>& rows) {
  Goals goals(rows);
  for (const auto& [size, in_flight] : groups_of(rows)) {
    if (in_flight != 1) continue;
    judge_rdma(goals, rows, size, "remote");
    judge_rdma(goals, rows, size, "host");
  }
  return goals.text();
}

}  // namespace farlift::apps

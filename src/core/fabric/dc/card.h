// Card: one opened mlx5 port with its protection domain and the GID we speak with.
//
// Invariants: the port was active and the card had made a DC queue when it was opened.
// Threads:    immutable after open().
// Errors:     not_found, unsupported, or what the library said.
#pragma once

#include "core/fabric/dc/dc.h"
#include "core/fabric/dc/verbs.h"

#include <memory>
#include <string>

namespace farlift::fabric::dc {

class Card {
 public:
  static Result<std::unique_ptr<Card>> open(std::shared_ptr<const Verbs> verbs,
                                            const DcOptions& options, std::string* why);

  const Verbs& verbs() const noexcept { return *verbs_; }
  const DcOptions& options() const noexcept { return options_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* pd() const noexcept { return pd_.get(); }
  const std::string& name() const noexcept { return name_; }
  const ibv_port_attr& port() const noexcept { return port_; }
  std::uint8_t reads_in_flight_max() const noexcept { return reads_in_flight_max_; }
  // The address that a DCT of this card with this number has.
  DcAddress address(std::uint32_t dctn) const noexcept;
  // How a packet to `gid` (on InfiniBand also `lid`) is routed from this port.
  ibv_ah_attr route(const DcAddress& to) const noexcept;

  template <class T, int (Verbs::*destroy)(T*) const>
  UniqueVerbs<T, destroy> own(T* object) const noexcept {
    return UniqueVerbs<T, destroy>(object, VerbsCloser<T, destroy>{verbs_.get()});
  }

 private:
  Card(std::shared_ptr<const Verbs> verbs, DcOptions options)
      : verbs_(std::move(verbs)), options_(std::move(options)) {}
  Status open_device(std::string* why);
  Status read_port(std::string* why);
  Status choose_gid(std::string* why);

  const std::shared_ptr<const Verbs> verbs_;
  const DcOptions options_;
  std::string name_;
  UniqueContext context_;
  ibv_port_attr port_{};
  std::uint8_t reads_in_flight_max_ = 1;
  std::uint32_t gid_index_ = 0;
  ibv_gid gid_{};
  UniquePd pd_;
};

}  // namespace farlift::fabric::dc

#include "core/net/tls.h"

#include "core/net/socket.h"

#include <climits>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace farlift::net {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const noexcept {
    Free(p);
  }
};
using UniqueSsl = std::unique_ptr<SSL, Deleter<SSL_free>>;
using UniqueSslCtx = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using UniqueBioMethod = std::unique_ptr<BIO_METHOD, Deleter<BIO_meth_free>>;

std::string openssl_text() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    char line[256];
    ERR_error_string_n(code, line, sizeof line);
    const char* why = ERR_reason_error_string(code);
    if (!text.empty()) text += "; ";
    text += why != nullptr ? why : line;
  }
  return text;
}

// OpenSSL's own socket BIO writes with write(2), which raises SIGPIPE in a process that we do not
// own; this one does not.
int bio_write(BIO* bio, const char* from, int length) {
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  ssize_t put = 0;
  do {
    put = ::send(fd, from, static_cast<std::size_t>(length), MSG_NOSIGNAL);
  } while (put < 0 && errno == EINTR);
  if (put < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}

int bio_read(BIO* bio, char* into, int length) {
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  ssize_t got = 0;
  do {
    got = ::recv(fd, into, static_cast<std::size_t>(length), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long bio_ctrl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

class TlsStream final : public Stream {
 public:
  TlsStream(std::shared_ptr<const TlsContext> context, UniqueSsl ssl, UniqueFd fd,
            std::shared_ptr<WakeSignal> own, std::shared_ptr<const WakeSignal> stop,
            const Clock& clock)
      : Stream(std::move(fd), std::move(own), std::move(stop), clock),
        context_(std::move(context)),
        ssl_(std::move(ssl)) {}

  ~TlsStream() override {
    // Tells the peer that nothing was truncated, as far as that goes without waiting.
    if (!failed_ && SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

  Status handshake(Deadline deadline) {
    for (;;) {
      if (is_cut()) return Error::make(Errc::closed, "TLS handshake");
      ERR_clear_error();
      const int rc = SSL_connect(ssl_.get());
      if (rc == 1) return {};
      const Error error = failure(rc, "TLS handshake");
      if (error.code != Errc::again) return error;
      TRY(wait(wants_write_ ? Interest::write : Interest::read, deadline));
    }
  }

  Result<std::size_t> try_read(std::span<const iovec> into) override {
    if (is_cut()) return Error::make(Errc::closed, "stream");
    const iovec area = into.front();
    ERR_clear_error();
    std::size_t got = 0;
    const int rc = SSL_read_ex(ssl_.get(), area.iov_base, area.iov_len, &got);
    if (rc == 1) return got;
    const Error error = failure(rc, "TLS read");
    read_wants_write_ = error.code == Errc::again && wants_write_;
    return error;
  }

  Result<std::size_t> try_write(std::span<const iovec> from) override {
    if (is_cut()) return Error::make(Errc::closed, "stream");
    std::size_t total = 0;
    for (const iovec& area : from) {
      std::size_t done = 0;
      while (done < area.iov_len) {
        ERR_clear_error();
        std::size_t put = 0;
        const auto* at = static_cast<const std::byte*>(area.iov_base) + done;
        const int rc = SSL_write_ex(ssl_.get(), at, area.iov_len - done, &put);
        if (rc != 1) {
          const Error error = failure(rc, "TLS write");
          write_wants_read_ = error.code == Errc::again && !wants_write_;
          // What was taken before is reported first; the error comes again with the next call.
          if (total > 0 && error.code == Errc::again) return total;
          return error;
        }
        write_wants_read_ = false;
        done += put;
        total += put;
      }
    }
    return total;
  }

  SSL* ssl() const noexcept { return ssl_.get(); }

  bool encrypted() const noexcept override { return true; }

  std::size_t pending() const noexcept override {
    return static_cast<std::size_t>(SSL_pending(ssl_.get()));
  }

 protected:
  short poll_events(Interest interest) const noexcept override {
    if (interest == Interest::read) return read_wants_write_ ? POLLOUT : POLLIN;
    return write_wants_read_ ? POLLIN : POLLOUT;
  }

 private:
  Error failure(int rc, const char* where) {
    const int saved = errno;
    const int code = SSL_get_error(ssl_.get(), rc);
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE) {
      wants_write_ = code == SSL_ERROR_WANT_WRITE;
      return Error::make(Errc::again, where);
    }
    failed_ = true;
    if (is_cut()) return Error::make(Errc::closed, where);
    if (code == SSL_ERROR_ZERO_RETURN)
      return Error::make(Errc::connection_lost, "peer ended the stream");
    if (code == SSL_ERROR_SYSCALL) {
      set_error_text("the peer closed the connection without ending TLS");
      return Error::make(Errc::connection_lost, where, saved);
    }
    const unsigned long first = ERR_peek_error();
    std::string text = openssl_text();
    const long verdict = SSL_get_verify_result(ssl_.get());
    if (verdict != X509_V_OK) {
      text += ": ";
      text += X509_verify_cert_error_string(verdict);
    }
    set_error_text(std::move(text));
    if (ERR_GET_REASON(first) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
      return Error::make(Errc::connection_lost, where);
    return Error::make(Errc::permission, where);
  }

  const std::shared_ptr<const TlsContext>
      context_;    // owns the methods of the BIO that ssl_ writes to
  UniqueSsl ssl_;  // ends before the descriptor that it writes to
  bool failed_ = false;
  bool wants_write_ = false;
  bool read_wants_write_ = false;
  bool write_wants_read_ = false;
};

class OpensslContext final : public TlsContext,
                             public std::enable_shared_from_this<OpensslContext> {
 public:
  OpensslContext(UniqueSslCtx context, UniqueBioMethod method, TlsOptions options)
      : options_(std::move(options)), method_(std::move(method)), context_(std::move(context)) {}

  Result<std::unique_ptr<Stream>> connect(UniqueFd fd, const std::string& host,
                                          std::shared_ptr<const WakeSignal> stop,
                                          const Clock& clock, Deadline deadline,
                                          std::string* reason) const override {
    TRY_ASSIGN(auto stream, make_stream(std::move(fd), std::move(stop), clock));
    TRY(set_name(stream->ssl(), host, reason));
    if (const Status done = stream->handshake(deadline); !done.ok()) {
      explain(reason, "TLS with " + (host.empty() ? std::string("the server") : host),
              done.error());
      if (reason != nullptr && !stream->last_error_text().empty())
        *reason += " (" + stream->last_error_text() + ")";
      return done.error();
    }
    return std::unique_ptr<Stream>(std::move(stream));
  }

  Result<std::unique_ptr<Stream>> start_client(UniqueFd fd, const std::string& host,
                                               std::shared_ptr<const WakeSignal> stop,
                                               const Clock& clock) const override {
    TRY_ASSIGN(auto stream, make_stream(std::move(fd), std::move(stop), clock));
    TRY(set_name(stream->ssl(), host, nullptr));
    SSL_set_connect_state(stream->ssl());
    return std::unique_ptr<Stream>(std::move(stream));
  }

  Result<std::unique_ptr<Stream>> start_server(UniqueFd fd, std::shared_ptr<const WakeSignal> stop,
                                               const Clock& clock) const override {
    TRY_ASSIGN(auto stream, make_stream(std::move(fd), std::move(stop), clock));
    SSL_set_accept_state(stream->ssl());
    return std::unique_ptr<Stream>(std::move(stream));
  }

 private:
  Result<std::unique_ptr<TlsStream>> make_stream(UniqueFd fd,
                                                 std::shared_ptr<const WakeSignal> stop,
                                                 const Clock& clock) const {
    UniqueSsl ssl(SSL_new(context_.get()));
    BIO* bio = BIO_new(method_.get());
    if (ssl == nullptr || bio == nullptr) {
      BIO_free(bio);
      return Error::make(Errc::no_memory, "TLS");
    }
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
    TRY_ASSIGN(auto own, WakeSignal::make());
    return std::make_unique<TlsStream>(shared_from_this(), std::move(ssl), std::move(fd),
                                       std::move(own), std::move(stop), clock);
  }

  Status set_name(SSL* ssl, const std::string& host, std::string* reason) const {
    const std::string& name = options_.server_name.empty() ? host : options_.server_name;
    const bool verify_name = !options_.insecure && options_.verify_hostname;
    if (name.empty()) {
      if (!verify_name) return {};
      if (reason != nullptr)
        *reason = "TLS over a Unix socket needs server_name, or verify_hostname off";
      return Error::make(Errc::invalid_argument, "TLS server name");
    }
    unsigned char address[sizeof(in6_addr)];
    const bool numeric = ::inet_pton(AF_INET, name.c_str(), address) == 1 ||
                         ::inet_pton(AF_INET6, name.c_str(), address) == 1;
    // Server name indication carries names only, never addresses.
    bool ok = numeric || SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                  const_cast<char*>(name.c_str())) == 1;
    if (ok && verify_name) {
      ok = numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1
                   : SSL_set1_host(ssl, name.c_str()) == 1;
    }
    if (ok) return {};
    if (reason != nullptr) *reason = "'" + name + "' is no usable TLS server name";
    ERR_clear_error();
    return Error::make(Errc::invalid_argument, "TLS server name");
  }

  const TlsOptions options_;
  const UniqueBioMethod method_;
  const UniqueSslCtx context_;
};

Status refuse(std::string* reason, const std::string& what) {
  const std::string why = openssl_text();
  if (reason != nullptr) *reason = what + (why.empty() ? "" : ": " + why);
  return Error::make(Errc::invalid_argument, "TLS options");
}

Status configure(SSL_CTX* context, const TlsOptions& options, bool verify, std::string* reason) {
  SSL_CTX_set_min_proto_version(context, options.only_tls13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_verify(context,
                     verify ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE,
                     nullptr);
  if (verify) {
    const bool own = !options.ca_file.empty() || !options.ca_directory.empty();
    if (!options.ca_file.empty() &&
        SSL_CTX_load_verify_file(context, options.ca_file.c_str()) != 1) {
      return refuse(reason, "cannot use CA file " + options.ca_file);
    }
    if (!options.ca_directory.empty() &&
        SSL_CTX_load_verify_dir(context, options.ca_directory.c_str()) != 1) {
      return refuse(reason, "cannot use CA directory " + options.ca_directory);
    }
    if (!own && SSL_CTX_set_default_verify_paths(context) != 1)
      return refuse(reason, "no system CA certificates");
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return refuse(reason, "a client certificate needs both certificate_file and key_file");
  }
  if (!options.certificate_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, options.certificate_file.c_str()) != 1) {
      return refuse(reason, "cannot use certificate file " + options.certificate_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      return refuse(reason, "cannot use key file " + options.key_file);
    }
    if (SSL_CTX_check_private_key(context) != 1)
      return refuse(reason, "the key does not belong to the certificate");
  }
  return {};
}

}  // namespace

namespace {

Result<std::shared_ptr<const TlsContext>> make_context(const SSL_METHOD* side,
                                                       const TlsOptions& options, bool verify,
                                                       std::string* reason) {
  ERR_clear_error();
  UniqueSslCtx context(SSL_CTX_new(side));
  UniqueBioMethod method(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "farlift stream"));
  if (context == nullptr || method == nullptr) return Error::make(Errc::no_memory, "TLS");
  BIO_meth_set_write(method.get(), bio_write);
  BIO_meth_set_read(method.get(), bio_read);
  BIO_meth_set_ctrl(method.get(), bio_ctrl);
  TRY(configure(context.get(), options, verify, reason));
  // Without a name for them sessions of verified clients could not be resumed; nobody needs to.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  return std::shared_ptr<const TlsContext>(
      std::make_shared<OpensslContext>(std::move(context), std::move(method), options));
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const TlsOptions& options,
                                                           std::string* reason) {
  return make_context(TLS_client_method(), options, !options.insecure, reason);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make_server(const TlsOptions& options,
                                                                  std::string* reason) {
  if (options.certificate_file.empty()) {
    if (reason != nullptr) *reason = "a TLS server needs certificate_file and key_file";
    return Error::make(Errc::invalid_argument, "TLS options");
  }
  const bool ask = !options.ca_file.empty() || !options.ca_directory.empty();
  return make_context(TLS_server_method(), options, ask && !options.insecure, reason);
}

}  // namespace farlift::net

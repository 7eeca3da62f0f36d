// The part of the server's module API that this module uses. No package ships a header for it, so
// it is declared here and resolved by name at load: the first word of the context given to OnLoad
// points at the server's lookup function.
//
// Invariants: after load_api() returned nullptr every function below is set and never changes.
// Threads:    the server's own rules; functions marked [any] may be called from any thread, [ts]
//             with a thread-safe context, all others on the server's main thread only.
// Errors:     load_api() returns the name of the first function that the server lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace farlift::blob::vk {

// Opaque to us.
struct Ctx;
struct String;
struct Key;
struct Type;
struct Command;
struct BlockedClient;
struct Io;
struct Digest;
struct InfoCtx;
struct KeyOptCtx;
struct ServerInfo;
struct CallReply;
struct ScanCursor;
struct DefragCtx;

using Milliseconds = long long;
using TimerId = std::uint64_t;

inline constexpr int kOk = 0;
inline constexpr int kErr = 1;
inline constexpr int kApiVersion = 1;

// OpenKey
inline constexpr int kRead = 1 << 0;
inline constexpr int kWrite = 1 << 1;
inline constexpr int kOpenNoTouch = 1 << 16;
inline constexpr int kOpenNoNotify = 1 << 17;
inline constexpr int kOpenNoStats = 1 << 18;
inline constexpr int kKeyEmpty = 0;
inline constexpr Milliseconds kNoExpire = -1;

// GetContextFlags
inline constexpr int kCtxMulti = 1 << 1;
inline constexpr int kCtxReplica = 1 << 3;
inline constexpr int kCtxReadOnly = 1 << 4;
inline constexpr int kCtxMaxmemory = 1 << 8;
inline constexpr int kCtxEvict = 1 << 9;
inline constexpr int kCtxReplicated = 1 << 12;
inline constexpr int kCtxLoading = 1 << 13;
inline constexpr int kCtxIsChild = 1 << 20;
inline constexpr int kCtxDenyBlocking = 1 << 21;

// SetModuleOptions
inline constexpr int kOptionHandleIoErrors = 1 << 0;
inline constexpr int kOptionNoImplicitSignalModified = 1 << 1;

// Keyspace notification classes
inline constexpr int kNotifyEvicted = 1 << 9;
inline constexpr int kNotifyModule = 1 << 13;

// Configuration flags
inline constexpr unsigned kConfigDefault = 0;
inline constexpr unsigned kConfigImmutable = 1u << 0;
inline constexpr unsigned kConfigHidden = 1u << 4;
inline constexpr unsigned kConfigMemory = 1u << 7;

inline constexpr int kEventLoopReadable = 1;

struct Event {
  std::uint64_t id;
  std::uint64_t version;
};
inline constexpr Event kEventClientChange{4, 1};
inline constexpr Event kEventShutdown{5, 1};
inline constexpr Event kEventForkChild{13, 1};
inline constexpr Event kEventEventLoop{15, 1};
inline constexpr std::uint64_t kClientDisconnected = 1;
inline constexpr std::uint64_t kForkBorn = 0;
inline constexpr std::uint64_t kForkDied = 1;
inline constexpr std::uint64_t kEventLoopBeforeSleep = 0;

inline constexpr std::uint64_t kClientUnixSocket = 1u << 4;
struct ClientInfo {
  std::uint64_t version = 1;
  std::uint64_t flags = 0;
  std::uint64_t id = 0;
  char addr[46] = {};
  std::uint16_t port = 0;
  std::uint16_t db = 0;
};

using CommandFn = int (*)(Ctx*, String**, int);
using DisconnectFn = void (*)(Ctx*, BlockedClient*);
using FreePrivateFn = void (*)(Ctx*, void*);
using EventFn = void (*)(Ctx*, Event, std::uint64_t subevent, void* data);
using TimerFn = void (*)(Ctx*, void*);
using EventLoopFn = void (*)(int fd, void* user, int mask);
using InfoFn = void (*)(InfoCtx*, int for_crash_report);
using ScanFn = void (*)(Ctx*, String* name, Key* key, void* user);
using ConfigGetString = String* (*)(const char*, void*);
using ConfigGetNumber = long long (*)(const char*, void*);
using ConfigGetInt = int (*)(const char*, void*);
using ConfigSetString = int (*)(const char*, String*, void*, String**);
using ConfigSetNumber = int (*)(const char*, long long, void*, String**);
using ConfigSetInt = int (*)(const char*, int, void*, String**);
using ConfigApply = int (*)(Ctx*, void*, String**);

// Version 5 of the server's table of type methods; order and types are its ABI.
inline constexpr std::uint64_t kTypeMethodsVersion = 5;
struct TypeMethods {
  std::uint64_t version = kTypeMethodsVersion;
  void* (*rdb_load)(Io*, int encver) = nullptr;
  void (*rdb_save)(Io*, void*) = nullptr;
  void (*aof_rewrite)(Io*, String*, void*) = nullptr;
  std::size_t (*mem_usage)(const void*) = nullptr;
  void (*digest)(Digest*, void*) = nullptr;
  void (*free)(void*) = nullptr;
  int (*aux_load)(Io*, int, int) = nullptr;
  void (*aux_save)(Io*, int) = nullptr;
  int aux_save_triggers = 0;
  std::size_t (*free_effort)(String*, const void*) = nullptr;
  void (*unlink)(String*, const void*) = nullptr;
  void* (*copy)(String*, String*, const void*) = nullptr;
  int (*defrag)(DefragCtx*, String*, void**) = nullptr;
  std::size_t (*mem_usage2)(KeyOptCtx*, const void*, std::size_t) = nullptr;
  std::size_t (*free_effort2)(KeyOptCtx*, const void*) = nullptr;
  void (*unlink2)(KeyOptCtx*, const void*) = nullptr;
  void* (*copy2)(KeyOptCtx*, const void*) = nullptr;
  void (*aux_save2)(Io*, int) = nullptr;
};

// Command info (key specifications); order and types are the server's ABI.
enum class KeySpecBegin : int { invalid = 0, unknown, index, keyword };
enum class KeySpecFind : int { omitted = 0, unknown, range, keynum };
inline constexpr std::uint64_t kKeyReadOnly = 1u << 0;
inline constexpr std::uint64_t kKeyOverwrite = 1u << 2;
inline constexpr std::uint64_t kKeyAccess = 1u << 4;
inline constexpr std::uint64_t kKeyUpdate = 1u << 5;
struct KeySpec {
  const char* notes = nullptr;
  std::uint64_t flags = 0;
  KeySpecBegin begin = KeySpecBegin::invalid;
  union {
    struct {
      int pos;
    } index;
    struct {
      const char* keyword;
      int startfrom;
    } keyword;
  } bs{};
  KeySpecFind find = KeySpecFind::omitted;
  union {
    struct {
      int lastkey, keystep, limit;
    } range;
    struct {
      int keynumidx, firstkey, keystep;
    } keynum;
  } fk{};
};
struct CommandHistory {
  const char* since = nullptr;
  const char* changes = nullptr;
};
struct CommandArg {
  const char* name = nullptr;
  int type = 0;
  int key_spec_index = -1;
  const char* token = nullptr;
  const char* summary = nullptr;
  const char* since = nullptr;
  int flags = 0;
  const char* deprecated_since = nullptr;
  CommandArg* subargs = nullptr;
  const char* display_text = nullptr;
};
struct CommandInfoVersion {
  int version = 1;
  std::size_t history_bytes = sizeof(CommandHistory);
  std::size_t key_spec_bytes = sizeof(KeySpec);
  std::size_t arg_bytes = sizeof(CommandArg);
};
struct CommandInfo {
  const CommandInfoVersion* version = nullptr;
  const char* summary = nullptr;
  const char* complexity = nullptr;
  const char* since = nullptr;
  CommandHistory* history = nullptr;
  const char* tips = nullptr;
  int arity = 0;
  KeySpec* key_specs = nullptr;
  CommandArg* args = nullptr;
};

// X(name, result, arguments)
#define FARLIFT_MODULE_API(X)                                                                     \
  X(TryAlloc, void*, (std::size_t)) /* any */                                                     \
  X(Free, void, (void*))            /* any */                                                     \
  X(SetModuleAttribs, void, (Ctx*, const char*, int, int))                                        \
  X(IsModuleNameBusy, int, (const char*))                                                         \
  X(GetServerVersion, int, ())                                                                    \
  X(SetModuleOptions, void, (Ctx*, int))                                                          \
  X(CreateCommand, int, (Ctx*, const char*, CommandFn, const char*, int, int, int))               \
  X(GetCommand, Command*, (Ctx*, const char*))                                                    \
  X(SetCommandInfo, int, (Command*, const CommandInfo*))                                          \
  X(AddACLCategory, int, (Ctx*, const char*))                                                     \
  X(SetCommandACLCategories, int, (Command*, const char*))                                        \
  X(WrongArity, int, (Ctx*))                                                                      \
  X(ReplyWithLongLong, int, (Ctx*, long long))                    /* ts */                        \
  X(ReplyWithError, int, (Ctx*, const char*))                     /* ts */                        \
  X(ReplyWithSimpleString, int, (Ctx*, const char*))              /* ts */                        \
  X(ReplyWithArray, int, (Ctx*, long))                            /* ts */                        \
  X(ReplyWithStringBuffer, int, (Ctx*, const char*, std::size_t)) /* ts */                        \
  X(ReplyWithNull, int, (Ctx*))                                   /* ts */                        \
  X(GetSelectedDb, int, (Ctx*))                                                                   \
  X(SelectDb, int, (Ctx*, int))                                                                   \
  X(OpenKey, Key*, (Ctx*, String*, int))                                                          \
  X(CloseKey, void, (Key*))                                                                       \
  X(KeyType, int, (Key*))                                                                         \
  X(UnlinkKey, int, (Key*))                                                                       \
  X(GetExpire, Milliseconds, (Key*))                                                              \
  X(GetLRU, int, (Key*, Milliseconds*))                                                           \
  X(GetLFU, int, (Key*, long long*))                                                              \
  X(RandomKey, String*, (Ctx*))                                                                   \
  X(SetExpire, int, (Key*, Milliseconds))                                                         \
  X(SignalModifiedKey, int, (Ctx*, String*))                                                      \
  X(NotifyKeyspaceEvent, int, (Ctx*, int, const char*, String*))                                  \
  X(CreateString, String*, (Ctx*, const char*, std::size_t)) /* any, with null */                 \
  X(FreeString, void, (Ctx*, String*))                                                            \
  X(HoldString, String*, (Ctx*, String*))                                                         \
  X(TrimStringAllocation, void, (String*))                                                        \
  X(StringPtrLen, const char*, (const String*, std::size_t*)) /* any */                           \
  X(Replicate, int, (Ctx*, const char*, const char*, ...))                                        \
  X(GetClientId, unsigned long long, (Ctx*))                                                      \
  X(GetClientInfoById, int, (void*, std::uint64_t))                                               \
  X(DeauthenticateAndCloseClient, int, (Ctx*, std::uint64_t))                                     \
  X(GetContextFlags, int, (Ctx*))                                                                 \
  X(CreateDataType, Type*, (Ctx*, const char*, int, TypeMethods*))                                \
  X(ModuleTypeSetValue, int, (Key*, Type*, void*))                                                \
  X(ModuleTypeReplaceValue, int, (Key*, Type*, void*, void**))                                    \
  X(ModuleTypeGetType, Type*, (Key*))                                                             \
  X(ModuleTypeGetValue, void*, (Key*))                                                            \
  X(IsIOError, int, (Io*))                                                                        \
  X(SaveStringBuffer, void, (Io*, const char*, std::size_t))                                      \
  X(LoadStringBuffer, char*, (Io*, std::size_t*))                                                 \
  X(EmitAOF, void, (Io*, const char*, const char*, ...))                                          \
  X(LogIOError, void, (Io*, const char*, const char*, ...))                                       \
  X(Log, void, (Ctx*, const char*, const char*, ...)) /* any */                                   \
  X(DigestAddStringBuffer, void, (Digest*, const char*, std::size_t))                             \
  X(DigestAddLongLong, void, (Digest*, long long))                                                \
  X(DigestEndSequence, void, (Digest*))                                                           \
  X(RegisterInfoFunc, int, (Ctx*, InfoFn))                                                        \
  X(InfoAddSection, int, (InfoCtx*, const char*))                                                 \
  X(InfoAddFieldCString, int, (InfoCtx*, const char*, const char*))                               \
  X(InfoAddFieldULongLong, int, (InfoCtx*, const char*, unsigned long long))                      \
  X(GetServerInfo, ServerInfo*, (Ctx*, const char*))                                              \
  X(FreeServerInfo, void, (Ctx*, ServerInfo*))                                                    \
  X(ServerInfoGetFieldUnsigned, unsigned long long, (ServerInfo*, const char*, int*))             \
  X(ServerInfoGetFieldC, const char*, (ServerInfo*, const char*))                                 \
  X(SubscribeToServerEvent, int, (Ctx*, Event, EventFn))                                          \
  X(ScanCursorCreate, ScanCursor*, ())                                                            \
  X(ScanCursorDestroy, void, (ScanCursor*))                                                       \
  X(Scan, int, (Ctx*, ScanCursor*, ScanFn, void*))                                                \
  X(BlockClient, BlockedClient*, (Ctx*, CommandFn, CommandFn, FreePrivateFn, long long))          \
  X(BlockClientSetPrivateData, void, (BlockedClient*, void*))                                     \
  X(BlockClientGetPrivateData, void*, (BlockedClient*))                                           \
  X(UnblockClient, int, (BlockedClient*, void*)) /* any */                                        \
  X(GetBlockedClientPrivateData, void*, (Ctx*))                                                   \
  X(SetDisconnectCallback, void, (BlockedClient*, DisconnectFn))                                  \
  X(GetThreadSafeContext, Ctx*, (BlockedClient*)) /* any */                                       \
  X(GetDetachedThreadSafeContext, Ctx*, (Ctx*))                                                   \
  X(FreeThreadSafeContext, void, (Ctx*)) /* any */                                                \
  X(CreateTimer, TimerId, (Ctx*, Milliseconds, TimerFn, void*))                                   \
  X(StopTimer, int, (Ctx*, TimerId, void**))                                                      \
  X(GetUsedMemoryRatio, float, ())                                                                \
  X(MallocUsableSize, std::size_t, (void*))                                                       \
  X(EventLoopAdd, int, (int, int, EventLoopFn, void*))                                            \
  X(EventLoopDel, int, (int, int))                                                                \
  X(EventLoopAddOneShot, int, (void (*)(void*), void*)) /* any */                                 \
  X(RegisterBoolConfig, int,                                                                      \
    (Ctx*, const char*, int, unsigned, ConfigGetInt, ConfigSetInt, ConfigApply, void*))           \
  X(RegisterNumericConfig, int,                                                                   \
    (Ctx*, const char*, long long, unsigned, long long, long long, ConfigGetNumber,               \
     ConfigSetNumber, ConfigApply, void*))                                                        \
  X(RegisterStringConfig, int,                                                                    \
    (Ctx*, const char*, const char*, unsigned, ConfigGetString, ConfigSetString, ConfigApply,     \
     void*))                                                                                      \
  X(RegisterEnumConfig, int,                                                                      \
    (Ctx*, const char*, int, unsigned, const char**, const int*, int, ConfigGetInt, ConfigSetInt, \
     ConfigApply, void*))                                                                         \
  X(LoadConfigs, int, (Ctx*))

#define FARLIFT_DECLARE_API(name, result, arguments) inline result(*name) arguments = nullptr;
FARLIFT_MODULE_API(FARLIFT_DECLARE_API)
#undef FARLIFT_DECLARE_API

// Resolves everything above. nullptr on success, else the name of the first function that is
// missing.
const char* load_api(Ctx* ctx) noexcept;

}  // namespace farlift::blob::vk

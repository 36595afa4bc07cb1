/* Multipath TCP with calls like those of sockets. Link with -lpolypath.
 *
 * Every descriptor is a socket of the kernel: read, write, send, recv, poll, select, epoll, fcntl and close do what they
 * always do. Calls that fail return -1 (or NULL), set errno, and leave a sentence in polypath_strerror. */
#ifndef POLYPATH_H
#define POLYPATH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct polypath_engine polypath_engine;

/* Subflows that polypath_info has room for. */
#define POLYPATH_MAX_SUBFLOWS 16

struct polypath_subflow {
  struct sockaddr_storage local;
  struct sockaddr_storage remote;
  uint64_t bytes_acked;
  uint64_t bytes_received;
  uint64_t retransmissions; /* segments sent again */
  uint64_t srtt_us;         /* smoothed round-trip time, microseconds */
  uint64_t cwnd_bytes;
};

struct polypath_info {
  uint32_t is_multipath;  /* 0 after a fallback to plain TCP */
  uint32_t subflow_count; /* of the connection; at most POLYPATH_MAX_SUBFLOWS of them are given */
  struct polypath_subflow subflows[POLYPATH_MAX_SUBFLOWS];
};

/* Starts an engine: "engine=kernel" (also NULL or ""), the kernel's Multipath TCP, or "engine=tcp", its plain TCP to
 * compare with. Any other choice: EINVAL. */
polypath_engine *polypath_open(const char *options);

/* Frees an engine; its descriptors live on. NULL is allowed. */
void polypath_free(polypath_engine *engine);

/* Connects. Options: NULL, or several of "nonblocking" and "congestion=NAME", with commas between. A nonblocking
 * connection is returned at once, as a descriptor in nonblocking mode with errno EINPROGRESS if it isn't ready; it
 * becomes writable when it is, and getsockopt(SO_ERROR) tells how it went. */
int polypath_connect(polypath_engine *engine, const struct sockaddr *remote, socklen_t length, const char *options);

/* Listens. Options: as for polypath_connect; accepted connections take on the congestion control. */
int polypath_listen(polypath_engine *engine, const struct sockaddr *local, socklen_t length, const char *options);

/* As accept(2), getsockname(2), getpeername(2), shutdown(2) and close(2). */
int polypath_accept(int listener, struct sockaddr *peer, socklen_t *length);
int polypath_getsockname(int fd, struct sockaddr *local, socklen_t *length);
int polypath_getpeername(int fd, struct sockaddr *peer, socklen_t *length);
int polypath_shutdown(int fd, int how);
int polypath_close(int fd);

/* State of a connection and its subflows. ENOTCONN once both sides have ended it. */
int polypath_info(int fd, struct polypath_info *info);

/* Sets "congestion" to the kernel's name of one. Anything else: ENOPROTOOPT. */
int polypath_set(int fd, const char *name, const char *value);

/* What went wrong in this thread's last failed call, valid until its next failed call. Never NULL. */
const char *polypath_strerror(void);

#ifdef __cplusplus
}
#endif
#endif

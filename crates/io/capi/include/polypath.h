/* Multipath TCP with calls like those of sockets. Link with -lpolypath.
 *
 * Every descriptor is a socket of the kernel: read, write, send, recv, poll, select, epoll, fcntl and close do what they
 * always do. Calls that fail return -1 (or NULL), set errno, and leave a sentence in polypath_strerror.
 *
 * With Polypath's own stack (engines tun and udp) a descriptor is a TCP socket over the loopback interface, whose other end
 * a thread of the engine joins with the stack's connection: half-close, resets and back-pressure pass through. What the
 * kernel itself tells of addresses and errors is about the loopback interface, so polypath_getsockname,
 * polypath_getpeername and polypath_error are there to ask instead. After fork, a child can go on reading, writing, polling and
 * shutting down its descriptors as long as the parent lives. What it closes stays open in the parent. Whatever else it asks
 * or changes with functions of this header gives EINVAL, but for polypath_getsockopt: the parent alone knows, so ask before
 * fork. It opens an engine of its own for new descriptors. */
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

/* Starts an engine. Options: words with commas or spaces between; "_" or "-" in their names.
 *   engine=kernel      the kernel's Multipath TCP (also NULL or "")
 *   engine=tcp         its plain TCP, to compare with
 *   engine=tun         Polypath's stack on all uplinks; needs CAP_NET_ADMIN
 *   engine=udp         Polypath's stack in UDP datagrams, to another Polypath; needs no privileges
 *   engine=auto        tun where this host allows it, else kernel, else tcp; with other settings than keepalive, tun or a failure
 * and for tun, udp and auto, the first three as often as needed:
 *   interface=NAME     an interface to use, each once; all with an address and a default route if none is named
 *   backup=NAME        an interface to use only when no other works, each once
 *   announce=ADDRESS   where peers reach this end, if not at its own addresses; tun: ADDRESS:PORT too
 *   scheduler=NAME, congestion=NAME (or congestion_control=NAME), path_manager=NAME
 *   judge_paths=never, foreign or always: whose paths to judge when they send to this end
 *   keepalive=SECONDS  idle time until a silent peer is probed. It is given up a minute later if it answers none of six
 *                      probes: polypath_error is ETIMEDOUT. With several paths that takes up to ten seconds more. 0 never
 *                      probes, 60 is the default (kernel's engines: setsockopt, SO_KEEPALIVE)
 *   udp_port=NUMBER    UDP port of peers, and of this end if it is reachable (udp; 6824)
 *   reachable          take connections from others (udp; needed for polypath_listen)
 * EINVAL for anything else, for what is given twice where one is expected, for an interface that is also a backup, and if none
 * of the interfaces that are named is there (one of several may come later); EPERM without the privileges; EMFILE where
 * descriptors run out. */
polypath_engine *polypath_open(const char *options);

/* The engine's name: "kernel", "tcp", "tun" or "udp"; with engine=auto the one that was taken. Valid until the program ends.
 * NULL with EINVAL for NULL. */
const char *polypath_engine_name(const polypath_engine *engine);

/* Why engine=auto took another engine than tun, such as "this user may not change the network (CAP_NET_ADMIN)", in the words of the
 * command polypath. "" if it took tun, or if the engine was named. Valid until the engine is freed. NULL with EINVAL for NULL. */
const char *polypath_engine_reason(const polypath_engine *engine);

/* Frees an engine. NULL is allowed. With the kernel's engines, its descriptors live on. With engines tun and udp, what was
 * written is delivered first, as long as peers take some of it within each five seconds, and for a minute at most. What is
 * undelivered then is lost, and its peer sees a reset. Then its connections and listeners end, and the network is as it was.
 * Threads that wait at a listener return: polypath_accept fails with EINVAL, and poll says POLLHUP. What waits to be accepted
 * is reset. With the kernel's engines they wait on: polypath_shutdown of the listener makes them return. The descriptors themselves are still the caller's to close. An engine that is left when the program returns from main or
 * calls exit is freed then. After _exit, abort or a signal that ends the program, the network is put back by a process that
 * engine tun has started for that. It is no child of the program, has none of its descriptors, and ends with the engine. It
 * can't start where there is no /bin/true, or where a program linked with libpolypath.a has its rights from its file (setuid,
 * setcap): there the next engine tun puts the network back, and `polypath doctor` tells of what is left. In a child of fork,
 * this does nothing to the parent's engine. */
void polypath_free(polypath_engine *engine);

/* Connects. Options: NULL, or several of "nonblocking" and "congestion=NAME", and with engines tun and udp
 * "scheduler=NAME" and "timeout_ms=NUMBER" (1 or more, ETIMEDOUT after that time), with commas or spaces between. A
 * nonblocking connection is returned at once, as a descriptor in nonblocking mode with errno EINPROGRESS if it isn't ready.
 * It becomes writable when it is, and polypath_error tells how it went. A connection that is ready sets errno to 0. */
int polypath_connect(polypath_engine *engine, const struct sockaddr *remote, socklen_t length, const char *options);

/* Listens. Options: "nonblocking", and with the kernel's engines "congestion=NAME", which accepted connections take on. Anything else
 * is EINVAL: with engines tun and udp, accepted connections have the settings of polypath_open. The descriptor becomes readable when there is a connection to accept. With engines tun and udp, a
 * program short of descriptors gets a connection once there are two again, one for each side. When it becomes readable,
 * polypath_accept succeeds, whatever else takes descriptors meanwhile. With engine tun the address is an uplink's, or 0.0.0.0
 * or ::, which clients on this host reach at 127.0.0.1. Of the loopback interface alone it is EADDRNOTAVAIL. */
int polypath_listen(polypath_engine *engine, const struct sockaddr *local, socklen_t length, const char *options);

/* As accept(2), getsockname(2), getpeername(2), shutdown(2) and close(2). With engines tun and udp, closing a listener also ends
 * polypath_accept and poll in other threads, as polypath_free does. With the kernel's engines it is close(2), which wakes nobody:
 * polypath_shutdown(listener, SHUT_RDWR) before it does. What poll says of a descriptor that is closed already is POLLNVAL. */
int polypath_accept(int listener, struct sockaddr *peer, socklen_t *length);
int polypath_getsockname(int fd, struct sockaddr *local, socklen_t *length);
int polypath_getpeername(int fd, struct sockaddr *peer, socklen_t *length);
int polypath_shutdown(int fd, int how);
int polypath_close(int fd);

/* As setsockopt(2) and getsockopt(2), with the same values: TCP_KEEPIDLE and TCP_KEEPINTVL are seconds in an int,
 * TCP_USER_TIMEOUT milliseconds in an unsigned int, TCP_CONGESTION the name of a congestion control, as long as its letters.
 * The kernel's engines take what the kernel takes. With engines tun and udp, SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT,
 * TCP_USER_TIMEOUT, SO_SNDBUF and SO_RCVBUF reach the stack, which setsockopt(2) alone leaves to the loopback interface;
 * TCP_NODELAY, TCP_CORK, and SO_LINGER with a time of 0 work by either. TCP_CONGESTION is ENOPROTOOPT there:
 * polypath_open and polypath_connect take congestion=NAME instead.
 *
 * Without TCP_USER_TIMEOUT, data that a peer never acknowledges ends its connection after some ten minutes. One that the
 * program has closed ends after three. */
int polypath_setsockopt(int fd, int level, int name, const void *value, socklen_t length);
int polypath_getsockopt(int fd, int level, int name, void *value, socklen_t *length);

/* What ended a connection, or kept it from opening: a number of errno, 0 for nothing, as getsockopt(SO_ERROR) tells it for
 * the kernel's engines. -1 on failure. With engines tun and udp, read and write say ECONNRESET whatever ended it, so it is
 * this that tells a reset from a peer that no longer answers, ETIMEDOUT. */
int polypath_error(int fd);

/* State of a connection and its subflows. ENOTCONN once both sides have ended it, which a moment after the last byte may not be seen
 * yet. Addresses are those that the network knows, IPv4 as AF_INET. This end's is unspecified as long as no packet has come there
 * (udp). */
int polypath_info(int fd, struct polypath_info *info);

/* The name of the interface that a subflow of polypath_info goes over, with its zero; IF_NAMESIZE bytes are enough. The
 * descriptor is the connection's. With engine udp it is the one by which the peer's packets come. ENODEV if no interface has the
 * subflow's address, such as when it is gone; ERANGE if the name doesn't fit. */
int polypath_interface(int fd, const struct polypath_subflow *subflow, char *name, size_t size);

/* Sets "congestion" to the kernel's name of one; EINVAL if it has none of that name, and EPERM if it is not for this user.
 * Anything else, or with another engine than the kernel's: ENOPROTOOPT. */
int polypath_set(int fd, const char *name, const char *value);

/* What went wrong in this thread's last failed call, valid until its next failed call. Never NULL. */
const char *polypath_strerror(void);

#ifdef __cplusplus
}
#endif
#endif

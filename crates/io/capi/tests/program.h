/* What the programs here have alike. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <arpa/inet.h>
#include <errno.h>
#include <polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                \
  if (!(condition)) {                                                                                    \
    fprintf(stderr, "line %d: %s: %s (errno %d)\n", __LINE__, #condition, polypath_strerror(), errno);   \
    exit(1);                                                                                             \
  }

/* The engine that ENGINE names. */
static inline polypath_engine *engine_of_environment(void) {
  polypath_engine *engine = polypath_open(getenv("ENGINE"));
  EXPECT(engine);
  return engine;
}

/* An IPv4 address and a port, which is 0 if it is NULL. */
static inline struct sockaddr_in address_of(const char *address, const char *port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port ? atoi(port) : 0)};
  EXPECT(inet_pton(AF_INET, address, &to.sin_addr) == 1);
  return to;
}

/* Listens at a free port of an address. */
static inline int listen_at(polypath_engine *engine, const char *address, const char *options) {
  struct sockaddr_in here = address_of(address, NULL);
  int listener = polypath_listen(engine, (struct sockaddr *)&here, sizeof here, options);
  EXPECT(listener >= 0);
  return listener;
}

/* Prints the port of a listener: whoever reads it may connect. */
static inline void tell_port(int listener) {
  struct sockaddr_in here;
  socklen_t length = sizeof here;
  EXPECT(polypath_getsockname(listener, (struct sockaddr *)&here, &length) == 0);
  printf("%d\n", ntohs(here.sin_port));
  fflush(stdout);
}

#endif

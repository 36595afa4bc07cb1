/* What a program may do with an engine other than free it. "exit": connects to itself, and returns from main without a
 * word; "fork": a child of fork uses the parent's engine; "close": children close a listener that the parent goes on with, while
 * another thread of the parent asks about it. ENGINE says which engine. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "program.h"

/* The test's. */
#define UPLINK "10.77.0.1"

static int listener;
static atomic_int is_over;

static void *ask(void *nothing) {
  while (!is_over) {
    struct sockaddr_in here;
    socklen_t length = sizeof here;
    EXPECT(polypath_getsockname(listener, (struct sockaddr *)&here, &length) == 0);
  }
  return nothing;
}

/* A child that waits for what a thread of its parent had locked is ended by its alarm. */
static void close_in_children(polypath_engine *engine) {
  pthread_t asking;
  struct sockaddr_in here = address_of(UPLINK, NULL);
  socklen_t length = sizeof here;
  listener = listen_at(engine, UPLINK, NULL);
  EXPECT(polypath_getsockname(listener, (struct sockaddr *)&here, &length) == 0);
  EXPECT(pthread_create(&asking, NULL, ask, NULL) == 0);
  for (int i = 0; i < 100; i++) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      alarm(20);
      int is_closed = polypath_close(listener) == 0;
      polypath_free(engine);
      _exit(!is_closed);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  is_over = 1;
  EXPECT(pthread_join(asking, NULL) == 0);
  int fd = polypath_connect(engine, (struct sockaddr *)&here, sizeof here, NULL);
  int accepted = polypath_accept(listener, NULL, NULL);
  char byte;
  EXPECT(fd >= 0 && accepted >= 0 && write(fd, "x", 1) == 1 && read(accepted, &byte, 1) == 1);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(20);
    struct polypath_info info;
    _exit(!(polypath_info(fd, &info) == -1 && errno == EINVAL && write(fd, "y", 1) == 1));
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(read(accepted, &byte, 1) == 1 && byte == 'y');
  EXPECT(polypath_close(fd) == 0 && polypath_close(accepted) == 0 && polypath_close(listener) == 0);
  polypath_free(engine);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  alarm(60);
  polypath_engine *engine = engine_of_environment();
  /* With auto too: the test's network allows it. */
  EXPECT(!strcmp(polypath_engine_name(engine), strcmp(getenv("ENGINE"), "engine=udp") ? "tun" : "udp"));
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9)};
  struct sockaddr *generic = (struct sockaddr *)&address;
  if (!strcmp(argv[1], "fork")) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      alarm(60);
      EXPECT(polypath_connect(engine, generic, sizeof address, NULL) == -1 && errno == EINVAL);
      EXPECT(strstr(polypath_strerror(), "fork"));
      EXPECT(polypath_listen(engine, generic, sizeof address, NULL) == -1 && errno == EINVAL);
      polypath_free(engine);
      return 0;
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    int fd = polypath_connect(engine, generic, sizeof address, "nonblocking");
    EXPECT(fd >= 0 && errno == EINPROGRESS && polypath_close(fd) == 0);
    polypath_free(engine);
  }
  if (!strcmp(argv[1], "close")) close_in_children(engine);
  printf("done\n");
  return 0;
}

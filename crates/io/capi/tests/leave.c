/* What a program may do with an engine other than free it. "exit": connects to itself, and returns from main without a
 * word; "fork": a child of fork uses the parent's engine; "close": children close a listener that the parent goes on with, while
 * another thread of the parent asks about it; "busy": children ask about what their parent uses just then, and open engines of
 * their own. ENGINE says which engine. */
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

static int talking[2];

/* Keeps the threads of the engine busy. */
static void *transfer(void *nothing) {
  static char bytes[65536];
  for (ssize_t got = 1; !is_over && got > 0;) {
    EXPECT(write(talking[0], bytes, sizeof bytes) > 0);
    got = read(talking[1], bytes, sizeof bytes);
  }
  return nothing;
}

/* As transfer, with the engine's own locks. */
static void *ask_of_connection(void *nothing) {
  while (!is_over) {
    struct polypath_info info;
    struct sockaddr_in here;
    socklen_t length = sizeof here;
    EXPECT(polypath_info(talking[0], &info) == 0);
    EXPECT(polypath_getsockname(talking[1], (struct sockaddr *)&here, &length) == 0);
    EXPECT(polypath_error(talking[0]) == 0);
  }
  return nothing;
}

#define REFUSED(call)                 \
  do {                                \
    errno = 0;                        \
    EXPECT((call) == -1);             \
    EXPECT(errno == EINVAL);          \
  } while (0)

/* All that a child may ask of its parent's descriptors. */
static void ask_in_child(void) {
  struct polypath_info info;
  struct polypath_subflow subflow = {.local.ss_family = AF_INET, .remote.ss_family = AF_INET};
  struct sockaddr_in address;
  struct sockaddr *generic = (struct sockaddr *)&address;
  char name[64];
  int one = 1;
  socklen_t of_one = sizeof one;
  for (int i = 0; i < 2; i++) {
    socklen_t length = sizeof address;
    REFUSED(polypath_getsockname(talking[i], generic, &length));
    REFUSED(polypath_getpeername(talking[i], generic, &length));
    REFUSED(polypath_error(talking[i]));
    REFUSED(polypath_info(talking[i], &info));
    REFUSED(polypath_interface(talking[i], &subflow, name, sizeof name));
    REFUSED(polypath_set(talking[i], "congestion", "cubic"));
    REFUSED(polypath_setsockopt(talking[i], SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one));
    EXPECT(polypath_getsockopt(talking[i], SOL_SOCKET, SO_TYPE, &one, &of_one) == 0 && one == SOCK_STREAM);
  }
  socklen_t length = sizeof address;
  REFUSED(polypath_getsockname(listener, generic, &length));
  REFUSED(polypath_accept(listener, NULL, NULL));
}

/* A child that waits for what a thread of its parent had locked is ended by its alarm. */
static void ask_in_children(polypath_engine *engine) {
  struct sockaddr_in here;
  struct sockaddr *generic = (struct sockaddr *)&here;
  socklen_t length = sizeof here;
  pthread_t threads[2];
  listener = listen_at(engine, UPLINK, NULL);
  EXPECT(polypath_getsockname(listener, generic, &length) == 0);
  talking[0] = polypath_connect(engine, generic, sizeof here, NULL);
  talking[1] = polypath_accept(listener, NULL, NULL);
  EXPECT(talking[0] >= 0 && talking[1] >= 0);
  EXPECT(pthread_create(&threads[0], NULL, transfer, NULL) == 0);
  EXPECT(pthread_create(&threads[1], NULL, ask_of_connection, NULL) == 0);
  for (int i = 0; i < 100; i++) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      alarm(20);
      ask_in_child();
      REFUSED(polypath_connect(engine, generic, sizeof here, NULL));
      if (i % 10 == 0) {
        polypath_engine *own = polypath_open("engine=udp,udp_port=48211");
        EXPECT(own);
        ask_in_child();
        polypath_free(own);
      }
      _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  is_over = 1;
  for (int i = 0; i < 2; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
  EXPECT(polypath_close(talking[0]) == 0 && polypath_close(talking[1]) == 0 && polypath_close(listener) == 0);
  polypath_free(engine);
}

/* The same, for children that close. */
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
  if (!strcmp(argv[1], "busy")) ask_in_children(engine);
  printf("done\n");
  return 0;
}

/* "serve ADDR": has two descriptors to spare, one for each side of a connection, takes what is left before it accepts, finds that
 * another listener has nothing to accept, and echoes so many connections; "client ADDR PORT": opens them all at once, and must get back all that it sends over each. ENGINE says
 * which engine. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "program.h"

#define CONNECTIONS 4

static void leave_descriptors(int count) {
  int limit = 0;
  for (int free = 0; free < count; limit++) free += fcntl(limit, F_GETFD) == -1;
  struct rlimit room;
  EXPECT(getrlimit(RLIMIT_NOFILE, &room) == 0);
  room.rlim_cur = limit;
  EXPECT(setrlimit(RLIMIT_NOFILE, &room) == 0);
}

/* All that comes, up to the end. */
static ssize_t read_all(int fd, char *buffer, size_t size) {
  ssize_t got, total = 0;
  while ((got = read(fd, buffer + total, size - total)) > 0) total += got;
  EXPECT(got == 0);
  return total;
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  /* So much later than what is right that it is no question of the machine's speed. */
  alarm(60);
  polypath_engine *engine = engine_of_environment();
  char buffer[64];
  if (!strcmp(argv[1], "serve")) {
    int listener = listen_at(engine, argv[2], NULL);
    int silent = listen_at(engine, argv[2], "nonblocking");
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    struct polypath_info info;
    leave_descriptors(2);
    tell_port(listener);
    for (int i = 0; i < CONNECTIONS; i++) {
      EXPECT(poll(&waiting, 1, -1) == 1);
      /* What is readable can be accepted, whatever else the program opens meanwhile. */
      int other = dup(0);
      EXPECT(polypath_accept(silent, NULL, NULL) == -1 && (errno == EMFILE || errno == EAGAIN));
      int another = dup(0);
      int fd = polypath_accept(listener, NULL, NULL);
      EXPECT(fd >= 0 && polypath_info(fd, &info) == 0);
      if (other >= 0) close(other);
      if (another >= 0) close(another);
      ssize_t got = read_all(fd, buffer, sizeof buffer);
      EXPECT(write(fd, buffer, got) == got && polypath_close(fd) == 0);
    }
    EXPECT(polypath_close(silent) == 0 && polypath_close(listener) == 0);
  } else {
    EXPECT(argc == 4);
    struct sockaddr_in address = address_of(argv[2], argv[3]);
    int open[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
      open[i] = polypath_connect(engine, (struct sockaddr *)&address, sizeof address, NULL);
      EXPECT(open[i] >= 0 && write(open[i], "question", 8) == 8 && polypath_shutdown(open[i], SHUT_WR) == 0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
      ssize_t got = read_all(open[i], buffer, sizeof buffer);
      EXPECT(got == 8 && !memcmp(buffer, "question", 8) && polypath_close(open[i]) == 0);
    }
  }
  polypath_free(engine);
  printf("done\n");
  return 0;
}

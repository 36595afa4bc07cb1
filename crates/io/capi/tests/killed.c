/* Starts an engine, makes sure that a program without children has none for that, prints "ready", and ends as the argument
 * says: "abort", "interrupt", or "stay" until it is killed or its input ends; then it frees the engine, and has no child
 * either. ENGINE says which engine. */
#include <signal.h>
#include <sys/wait.h>

#include "program.h"

static void expect_no_child(void) {
  int status;
  EXPECT(waitpid(-1, &status, WNOHANG | __WALL) == -1 && errno == ECHILD);
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  alarm(120);
  // Whoever runs the tests in the background may ignore it.
  signal(SIGINT, SIG_DFL);
  polypath_engine *engine = engine_of_environment();
  expect_no_child();
  printf("ready\n");
  fflush(stdout);
  if (!strcmp(argv[1], "abort")) abort();
  if (!strcmp(argv[1], "interrupt")) raise(SIGINT);
  char byte;
  EXPECT(read(0, &byte, 1) == 0);
  polypath_free(engine);
  expect_no_child();
  return 0;
}

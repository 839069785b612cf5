/* Ranks of torch.distributed with the Gloo backend, which has one all-reduce. */
#include <string.h>

#include "collectives.h"

/* A worker as in collectives_worker.c.  The alarm ends it should it hang. */
static const char script[] =
    "import os, signal, socket, sys, time\n"
    "signal.alarm(900)\n"
    "os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')\n"
    "path, number, rank, size, most, port = sys.argv[1], *map(int, sys.argv[2:7])\n"
    "home = socket.socket(socket.AF_UNIX)\n"
    "home.connect(path)\n"
    "def say(text):\n"
    "    home.sendall((text + '\\n').encode())\n"
    "try:\n"
    "    import torch\n"
    "    import torch.distributed as dist\n"
    "    torch.set_num_threads(1)\n"
    "    dist.init_process_group('gloo', init_method='tcp://127.0.0.1:%d' % port, rank=rank,\n"
    "                            world_size=size)\n"
    "except Exception as error:\n"
    "    say('SORRY %d %d %s' % (number, rank, str(error).split('\\n')[0]))\n"
    "    sys.exit(1)\n"
    "say('HELLO %d %d' % (number, rank))\n"
    "i = torch.arange(most) % 8\n"
    "for line in home.makefile():\n"
    "    row, n, loop, check = map(int, line.split())\n"
    "    seconds, wrong = 0, 0\n"
    "    if check:\n"
    "        x = (i[:n] + rank).float()\n"
    "        dist.all_reduce(x)\n"
    "        due = (size * (size - 1) // 2 + size * i[:n]).float()\n"
    "        wrong = int((x != due).sum())\n"
    "    else:\n"
    "        x = torch.zeros(n)\n"
    "        dist.barrier()\n"
    "        begin = time.monotonic()\n"
    "        for _ in range(loop):\n"
    "            dist.all_reduce(x)\n"
    "        seconds = (time.monotonic() - begin) / loop\n"
    "    say('OK %.9g 0 %d' % (seconds, wrong))\n";

static gboolean start(contender *c, const bench_plan *p, const char *path, int number) {
  /* The first python may be one of the user's own that lacks the distribution's packages. */
  const char *python =
      g_file_test("/usr/bin/python3", G_FILE_TEST_IS_EXECUTABLE) ? "/usr/bin/python3" : "python3";
  char where[64];
  if (!weir_bench_free_port(where, sizeof where)) {
    (void)g_strlcpy(c->absent, "no free port on the loopback", sizeof c->absent);
    return FALSE;
  }
  const char *port = strrchr(where, ':') + 1;
  for (int rank = 0; rank < p->ranks; rank++) {
    g_auto(GStrv) text = g_new0(char *, 5);
    text[0] = g_strdup_printf("%d", number);
    text[1] = g_strdup_printf("%d", rank);
    text[2] = g_strdup_printf("%d", p->ranks);
    text[3] = g_strdup_printf("%" G_GSIZE_FORMAT, p->most);
    char *argv[] = {(char *)(guintptr)python,
                    (char *)(guintptr) "-c",
                    (char *)(guintptr)script,
                    (char *)(guintptr)path,
                    text[0],
                    text[1],
                    text[2],
                    text[3],
                    (char *)(guintptr)port,
                    NULL};
    if (!weir_bench_spawn(c, argv)) {
      (void)g_strlcpy(c->absent, "no python3 can be started (Debian: python3-torch)",
                      sizeof c->absent);
      return FALSE;
    }
  }
  return TRUE;
}

static const char *row_name(bench_kind kind, guint32 row) {
  return kind == BENCH_ALLREDUCE && row == 0 ? "all_reduce" : NULL;
}

static gboolean has_row(const contender *c, const bench_plan *p, guint32 row) {
  return c->row_name(p->kind, row) != NULL;
}

void weir_bench_contender_gloo(contender *c) {
  *c = (contender){
      .name = "gloo", .peer = TRUE, .row_name = row_name, .has_row = has_row, .start = start};
}

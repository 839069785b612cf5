/* Ranks that mpirun starts, as this same program: Open MPI's own all-reduce, with each of its
 * algorithms.  Which one a communicator uses is settled when it is made, from a variable of the
 * tools' interface: so there is one communicator an algorithm. */

#include "collectives.h"

/* As coll_tuned numbers them; 0: as it decides by itself. */
static const char *const names[] = {
    "default", "basic-linear",   "nonoverlapping", "recursive-doubling",
    "ring",    "segmented-ring", "rabenseifner"};

static const char *row_name(bench_kind kind, guint32 row) {
  return kind == BENCH_ALLREDUCE && row < G_N_ELEMENTS(names) ? names[row] : NULL;
}

static gboolean has_row(const contender *c, const bench_plan *p, guint32 row) {
  return c->row_name(p->kind, row) != NULL;
}

#ifdef WEIR_HAVE_MPI
#include <mpi.h>

typedef struct mpi_rank {
  bench_rank base;
  MPI_Comm comm[G_N_ELEMENTS(names)];
} mpi_rank;

static gboolean went_well(bench_rank *r, int code) {
  if (code == MPI_SUCCESS) return TRUE;
  (void)g_snprintf(r->message, sizeof r->message, "MPI error %d", code);
  return FALSE;
}

static gboolean once(bench_rank *r, guint32 row, gsize n) {
  const mpi_rank *m = (const mpi_rank *)r;
  if (row >= G_N_ELEMENTS(names)) return went_well(r, MPI_ERR_ARG);
  return went_well(r, MPI_Allreduce(r->x, r->y, (int)n, MPI_FLOAT, MPI_SUM, m->comm[row]));
}

static gboolean together(bench_rank *r) { return went_well(r, MPI_Barrier(MPI_COMM_WORLD)); }

/* FALSE where the algorithm cannot be set. */
static gboolean choose(int algorithm) {
  int index = 0, count = 0, got = -1;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS)
    return FALSE;
  const gboolean set = count == 1 && MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS &&
                       MPI_T_cvar_read(handle, &got) == MPI_SUCCESS && got == algorithm;
  (void)MPI_T_cvar_handle_free(&handle);
  return set;
}

static gboolean make_communicators(mpi_rank *m) {
  for (int a = 0; a < (int)G_N_ELEMENTS(names); a++)
    if (!choose(a) || MPI_Comm_dup(MPI_COMM_WORLD, &m->comm[a]) != MPI_SUCCESS) {
      (void)g_snprintf(m->base.message, sizeof m->base.message,
                       "this MPI does not let its algorithms be chosen");
      return FALSE;
    }
  return TRUE;
}

int weir_bench_mpi_rank(const char *text) {
  g_auto(GStrv) part = g_strsplit(text, ",", 3);
  if (g_strv_length(part) != 3) return 2;
  const int number = (int)g_ascii_strtoll(part[1], NULL, 10);
  mpi_rank m = {
      .base = {.kind = BENCH_ALLREDUCE, .apart = TRUE, .once = once, .together = together}};
  m.base.most = g_ascii_strtoull(part[2], NULL, 10);
  int granted = 0, code = 1;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &granted) != MPI_SUCCESS ||
      MPI_Init(NULL, NULL) != MPI_SUCCESS)
    return 1;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &m.base.rank);
  (void)MPI_Comm_size(MPI_COMM_WORLD, &m.base.size);
  if (make_communicators(&m) && weir_bench_rank_open(&m.base))
    code = weir_bench_serve(&m.base, part[0], number);
  else
    weir_bench_excuse(part[0], number, m.base.rank, m.base.message);
  weir_bench_rank_close(&m.base);
  (void)MPI_Finalize();
  (void)MPI_T_finalize();
  return code;
}

/* There may be more ranks than processors.  Then an idle rank should yield; the other setting is
 * there to be compared with. */
static gboolean start(contender *c, const bench_plan *p, const char *path, int number) {
  const gboolean tcp = c->setting == BENCH_MPI_TCP || c->setting == BENCH_MPI_TCP_SPIN;
  const gboolean spin = c->setting == BENCH_MPI_SHM_SPIN || c->setting == BENCH_MPI_TCP_SPIN;
  g_autofree char *options = g_strdup_printf(
      "--mca pml ob1 --mca btl %s,self --mca coll_tuned_use_dynamic_rules 1 "
      "--mca coll_tuned_allreduce_algorithm_segmentsize 262144 --mca mpi_yield_when_idle %d",
      tcp ? "tcp" : "vader", spin ? 0 : 1);
  g_autofree char *what = g_strdup_printf("%s,%d,%" G_GSIZE_FORMAT, path, number, p->most);
  return weir_bench_mpirun(c, p->ranks, options, "--mpi-rank", what);
}
#else
int weir_bench_mpi_rank(const char *text) {
  (void)text;
  return 2;
}

static gboolean start(contender *c, const bench_plan *p, const char *path, int number) {
  (void)p;
  (void)path;
  (void)number;
  (void)g_strlcpy(c->absent, "built without MPI (Debian: libopenmpi-dev)", sizeof c->absent);
  return FALSE;
}
#endif

void weir_bench_contender_mpi(contender *c, int setting) {
  static const char *const kinds[BENCH_MPI_SETTINGS] = {"openmpi-shm", "openmpi-shm-spin",
                                                        "openmpi-tcp", "openmpi-tcp-spin"};
  *c = (contender){.name = kinds[setting],
                   .peer = TRUE,
                   .launched = TRUE,
                   .row_name = row_name,
                   .has_row = has_row,
                   .start = start,
                   .setting = setting};
}

/* A table of digests in a file: one line a row, "COURSE MACHINES PLAN" and then either "refused" or
 * "AVERAGES/RESIDUALS" for each seed.  Lines that begin with '#' say what the table is. */
#ifndef WEIR_TESTS_DIGEST_TABLE_H
#define WEIR_TESTS_DIGEST_TABLE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGEST_SEEDS = 3, DIGEST_KEY = 112, DIGEST_ROWS = 4000 };

typedef struct digest_row {
  char key[DIGEST_KEY];
  bool refused, seen;
  int seeds;
  uint64_t averages[DIGEST_SEEDS], residuals[DIGEST_SEEDS];
} digest_row;

typedef struct digest_table {
  digest_row *row;
  size_t rows;
} digest_table;

static inline void digest_print(FILE *to, const digest_row *row) {
  (void)fprintf(to, "%s%s", row->key, row->refused ? " refused" : "");
  for (int s = 0; s < row->seeds; s++)
    (void)fprintf(to, " %016" PRIx64 "/%016" PRIx64, row->averages[s], row->residuals[s]);
  (void)fputc('\n', to);
}

/* Takes the fields apart behind the three words of the key; false: they are not a row's. */
static inline bool digest_read_row(char *line, digest_row *row) {
  char course[24], machines[24], plan[64];
  int used = 0;
  *row = (digest_row){0};
  if (sscanf(line, "%23s %23s %63s%n", course, machines, plan, &used) != 3) return false;
  (void)snprintf(row->key, sizeof row->key, "%s %s %s", course, machines, plan);
  line[strcspn(line, "\n")] = '\0';
  row->refused = strcmp(line + used, " refused") == 0;
  if (row->refused) return true;
  for (char *at = line + used; *at != '\0'; at += used, row->seeds++) {
    const int s = row->seeds;
    if (s == DIGEST_SEEDS || sscanf(at, " %16" SCNx64 "/%16" SCNx64 "%n", &row->averages[s],
                                    &row->residuals[s], &used) != 2)
      return false;
  }
  return row->seeds > 0;
}

/* The row of that key; NULL: there is none. */
static inline digest_row *digest_find(const digest_table *table, const char *key) {
  for (size_t i = 0; i < table->rows; i++)
    if (strcmp(table->row[i].key, key) == 0) return &table->row[i];
  return NULL;
}

/* False: the file is not there, or a line of it is no row, or there twice. */
static inline bool digest_read(const char *path, digest_table *table) {
  char line[256];
  FILE *file = fopen(path, "re");
  *table = (digest_table){calloc(DIGEST_ROWS, sizeof(digest_row)), 0};
  bool good = file != NULL && table->row != NULL;
  while (good && fgets(line, sizeof line, file) != NULL) {
    if (line[0] == '#') continue;
    digest_row *row = &table->row[table->rows];
    good = table->rows + 1 < DIGEST_ROWS && digest_read_row(line, row) &&
           digest_find(table, row->key) == NULL;
    table->rows += good;
  }
  if (file != NULL) (void)fclose(file);
  return good;
}

static inline void digest_free(digest_table *table) {
  free(table->row);
  *table = (digest_table){0};
}

#endif

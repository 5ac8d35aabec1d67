/* The cases of test/golden/dtensor.txt (tools/golden_dtensor.py says what a line is), and tensors
 * whose element i is i. */
#ifndef TEST_DTENSOR_CASES_H
#define TEST_DTENSOR_CASES_H

#include <lockstep/dtensor.h>

#include <stdio.h>

/* Opens the file; ends the test where it is not there. */
FILE *cases_open(void);
/* The next line of that kind ("layout", "move") without its first word and line end, NULL behind
 * the last one. line is getline's. */
char *cases_next(FILE *file, const char *kind, char **line, size_t *capacity);
/* The next word at *text, which moves on; NULL where there is none. */
char *cases_word(char **text);
/* "5x3" to sizes; returns their number. "-" is none. */
int cases_sizes(const char *word, int64_t *sizes);
/* "2x3" to a mesh with axes a, b, c. */
void cases_mesh(const char *word, struct ls_mesh *mesh);
/* "S0/2,P" to placements; returns their number. */
int cases_placements(const char *word, struct ls_placement *placements);
/* The layout of a tensor of that shape, mesh and placements; ends the test where it is refused. */
struct ls_dtensor_spec cases_spec(const char *shape, const char *mesh, const char *placements);

/* Local. What a rank holds of the tensor whose element i is i, coordinate c of a Partial axis c + 1
 * times that; tensor is initialised. */
void cases_fill(struct ls_dtensor *tensor);
/* Local. LS_OK, or LS_ENUMERIC with element, value and expectation in the text: the first element
 * of the whole in which tensor differs from `factor` times its index. */
int cases_check(const struct ls_dtensor *tensor, double factor, struct ls_error *error);

#endif

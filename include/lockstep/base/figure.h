/* lockstep/base/figure.h - a number with a unit, as people write it: "80 GB", "1.5GiB", "100Gbps",
 * "3 us", "300B" of tokens. Recipes, clusters, options and the environment all read it here.
 *
 * A number is decimal: no NaN, infinity or hexadecimal. Spaces may stand between it and its unit.
 * k or K, M, G, T, P, E are powers of 1,000, Ki to Ti powers of 1,024. Everything here is Local. */
#ifndef LOCKSTEP_BASE_FIGURE_H
#define LOCKSTEP_BASE_FIGURE_H

#include <lockstep/base/linkage.h>

#include <stdbool.h>
#include <stddef.h>

LS_C_BEGIN

enum ls_figure {
    LS_FIGURE_NUMBER,  /* without a unit */
    LS_FIGURE_COUNT,   /* k, M, G or B (billion), T */
    LS_FIGURE_BYTES,   /* B, kB, GiB; the B may be left out behind a prefix */
    LS_FIGURE_RATE,    /* bytes a second: GB/s, GiB/s; also Gbit/s, Gb/s, Gbps */
    LS_FIGURE_FLOPS,   /* operations a second: TFLOP/s, TFLOPS */
    LS_FIGURE_SECONDS, /* h, min, s, ms, us, ns */
    LS_FIGURE_WATTS,   /* W, kW, MW */
    LS_FIGURES
};
enum { LS_FIGURE_BYTES_MAX = 64 }; /* of what ls_figure_text writes */

/* Bytes of the number that text begins with; 0: it does not begin with one. */
size_t ls_figure_length(const char *text);
/* The whole of text is a figure of that kind. A size or a rate below a million that has no unit has
 * lost it, 0 excepted, and is no figure: 80 is no device's memory. */
bool ls_figure_read(enum ls_figure kind, const char *text, double *value);
/* The fewest digits that read back as value, in the unit that needs the fewest: "3.35 TB/s". */
void ls_figure_text(enum ls_figure kind, double value, char text[LS_FIGURE_BYTES_MAX]);

LS_C_END
#endif

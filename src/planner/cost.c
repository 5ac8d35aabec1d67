/* How long an op takes on a cluster. */
#include "planner/cost_private.h"

#include <math.h>

/* ---- measured works ---------------------------------------------------------------------------
 *
 * Rows of one kind, type and number of threads. What grows with the work is m n k, here its size:
 * time is interpolated as a power of each side between neighbours, and is proportional to size
 * outside of what was measured. */

struct rates {
    const struct ls_measured_work *row;
    int64_t count;
};

static int rows_compare(const struct ls_measured_work *row, enum ls_work_kind kind,
                        enum ls_dtype dtype, int threads)
{
    if (row->kind != kind)
        return row->kind < kind ? -1 : 1;
    if (row->dtype != dtype)
        return row->dtype < dtype ? -1 : 1;
    return (row->threads > threads) - (row->threads < threads);
}

/* The first row that is not before (or, with `behind`, that is behind) those of the kind. */
static int64_t rows_bound(const struct ls_cluster *cluster, const struct ls_work *work, int threads,
                          bool behind)
{
    int64_t low = 0, high = cluster->works_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int by = rows_compare(&cluster->works[middle], work->kind, work->dtype, threads);
        if (by < 0 || (behind && by == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static double size_of(int64_t m, int64_t n, int64_t k)
{
    return (double)m * (double)n * (double)k;
}

static double row_size(const struct ls_measured_work *row)
{
    return size_of(row->m, row->n, row->k);
}

double cost_between(double x, double x0, double y0, double x1, double y1)
{
    if (x == x0 || x0 == x1)
        return y0;
    return x == x1 ? y1 : y0 * pow(y1 / y0, log(x / x0) / log(x1 / x0));
}

/* Whether a row has as many bytes an element as the work. */
static bool row_has_each(const struct ls_measured_work *row, double each)
{
    return row->bytes > 0 && fabs((double)row->bytes / row_size(row) / each - 1) < 1e-3;
}

/* By size alone: what reads and writes elements. Of rows of the same size the slowest counts; with
 * some of as many bytes an element (each) these alone. */
static double rows_by_size(const struct rates *rows, double size, double each)
{
    double below = 0, below_s = 0, above = INFINITY, above_s = 0;
    bool some = false;
    for (int64_t i = 0; i < rows->count && !some; i++)
        some = row_has_each(&rows->row[i], each);
    for (int64_t i = 0; i < rows->count; i++) {
        const struct ls_measured_work *row = &rows->row[i];
        double at = row_size(row);
        if (some && !row_has_each(row, each))
            continue;
        if (at <= size && (at > below || (at == below && row->seconds > below_s))) {
            below = at;
            below_s = row->seconds;
        }
        if (at >= size && (at < above || (at == above && row->seconds > above_s))) {
            above = at;
            above_s = row->seconds;
        }
    }
    if (below == 0)
        return above_s * size / above;
    return isinf(above) ? below_s * size / below
                        : cost_between(size, below, below_s, above, above_s);
}

/* Rows are every combination of some m, some n and some k: their numbers in side[3]. */
static bool rows_are_grid(const struct rates *rows, int64_t side[3])
{
    const struct ls_measured_work *row = rows->row;
    int64_t plane = 0, line = 0;
    while (plane < rows->count && row[plane].m == row[0].m)
        plane++;
    while (line < plane && row[line].n == row[0].n)
        line++;
    if (rows->count % plane || plane % line)
        return false;
    for (int64_t i = 0; i < rows->count; i++)
        if (row[i].m != row[i - i % plane].m || row[i].n != row[i % plane - i % line].n ||
            row[i].k != row[i % line].k)
            return false;
    side[0] = rows->count / plane;
    side[1] = plane / line;
    side[2] = line;
    return true;
}

static int64_t row_side(const struct ls_measured_work *row, int axis)
{
    return axis == 0 ? row->m : axis == 1 ? row->n : row->k;
}

/* The cell of a grid that x lies in, axis by axis: its lower corner's index, and how far x is from
 * it, 0 to 1 by logarithms. Outside of the grid x moves to its edge, and *times says by what size
 * is larger than that. */
static double rows_by_grid(const struct rates *rows, const int64_t side[3], const int64_t x[3])
{
    const int64_t step[3] = {side[1] * side[2], side[2], 1};
    int64_t corner = 0;
    double share[3], times = 1, sum = 0;
    for (int axis = 0; axis < 3; axis++) {
        int64_t low = 0, last = side[axis] - 1;
        while (low < last - 1 && row_side(&rows->row[(low + 1) * step[axis]], axis) <= x[axis])
            low++;
        double at = (double)x[axis];
        double from = (double)row_side(&rows->row[low * step[axis]], axis);
        double to = (double)row_side(&rows->row[ls_min(low + 1, last) * step[axis]], axis);
        double inside = at < from ? from : at > to ? to : at;
        times *= at / inside;
        share[axis] = to > from ? log(inside / from) / log(to / from) : 0;
        corner += low * step[axis];
    }
    for (int vertex = 0; vertex < 8; vertex++) {
        double weight = 1;
        int64_t at = corner;
        for (int axis = 0; axis < 3; axis++) {
            bool upper = vertex >> axis & 1;
            weight *= upper ? share[axis] : 1 - share[axis];
            at += upper && share[axis] > 0 ? step[axis] : 0;
        }
        sum += weight > 0 ? weight * log(rows->row[at].seconds) : 0;
    }
    return times * exp(sum);
}

/* Rows anywhere: the rate as that of the near ones (Shepard 1968: weights fall with the fourth
 * power of the distance); but no less time than a measured shape that is nowhere larger, and no
 * more than one that is nowhere smaller, in bytes neither. */
static double rows_by_distance(const struct rates *rows, const int64_t x[3], double bytes)
{
    double weights = 0, sum = 0, least = 0, most = INFINITY;
    for (int64_t i = 0; i < rows->count; i++) {
        const struct ls_measured_work *row = &rows->row[i];
        double distance = 0;
        bool smaller = (double)row->bytes <= bytes;
        bool larger = row->bytes == 0 || (double)row->bytes >= bytes;
        for (int axis = 0; axis < 3; axis++) {
            double away = log((double)x[axis] / (double)row_side(row, axis));
            distance += away * away;
            smaller = smaller && row_side(row, axis) <= x[axis];
            larger = larger && row_side(row, axis) >= x[axis];
        }
        double weight = 1 / (distance * distance);
        weights += weight;
        sum += weight * log(row_size(row) / row->seconds);
        if (smaller && row->seconds > least)
            least = row->seconds;
        if (larger && row->seconds < most)
            most = row->seconds;
    }
    double seconds = size_of(x[0], x[1], x[2]) / exp(sum / weights);
    return fmin(fmax(seconds, least), most);
}

static bool is_product(enum ls_work_kind kind)
{
    return kind == LS_WORK_PRODUCT || kind == LS_WORK_PRODUCT_BT || kind == LS_WORK_PRODUCT_AT;
}

static bool is_attention(enum ls_work_kind kind)
{
    return kind == LS_WORK_ATTENTION || kind == LS_WORK_ATTENTION_BACKWARD;
}

static struct rates rows_of(const struct ls_cluster *cluster, int threads,
                            const struct ls_work *work)
{
    int64_t first = rows_bound(cluster, work, threads, false);
    return (struct rates){cluster->works + first, rows_bound(cluster, work, threads, true) - first};
}

/* Of the work's shape the row whose bytes are nearest to its own, one of all bytes behind those
 * that have some; NULL: none. */
static const struct ls_measured_work *row_nearest(const struct rates *rows,
                                                  const struct ls_work *work)
{
    const struct ls_measured_work *nearest = NULL;
    double least = INFINITY;
    for (int64_t i = 0; i < rows->count; i++) {
        const struct ls_measured_work *row = &rows->row[i];
        if (row->m != work->m || row->n != work->n || row->k != work->k)
            continue;
        double away = row->bytes > 0 ? fabs(log((double)row->bytes / fmax(work->bytes, 1))) : 1e300;
        if (away < least) {
            least = away;
            nearest = row;
        }
    }
    return nearest;
}

const struct ls_measured_work *ls_cost_row(const struct ls_cluster *cluster, int threads,
                                           const struct ls_work *work)
{
    const struct rates rows = rows_of(cluster, threads, work);
    const struct ls_measured_work *row = row_nearest(&rows, work);
    return row && (row->bytes == 0 || row->bytes == (int64_t)work->bytes) ? row : NULL;
}

/* Negative: nothing like it was measured. */
static double measured_work(const struct ls_cluster *cluster, int threads,
                            const struct ls_work *work)
{
    const struct rates rows = rows_of(cluster, threads, work);
    const int64_t x[3] = {work->m, work->n, work->k};
    int64_t side[3];
    if (rows.count == 0)
        return -1;
    const struct ls_measured_work *row = row_nearest(&rows, work);
    if (row)
        return row->seconds;
    double size = size_of(x[0], x[1], x[2]);
    if (!is_product(work->kind) && !is_attention(work->kind))
        return rows_by_size(&rows, size, work->bytes / size);
    return rows_are_grid(&rows, side) ? rows_by_grid(&rows, side, x)
                                      : rows_by_distance(&rows, x, work->bytes);
}

/* ---- the roofline ---------------------------------------------------------------------------- */

enum { TILE_LEAST = 64 }; /* sides that libraries still cut products into */

/* A product's operations with such tiles on so many units: what is computed, also where the last
 * tiles are not full and the last wave does not fill the units, at the rate of full tiles. A tile's
 * operands come no faster than those of a full one: with fewer products for each of them, they
 * limit it. */
static double tiled_flops(const struct ls_cluster_accelerator *accelerator, double units,
                          const struct ls_work *work, double side_m, double side_n)
{
    double full_m = (double)accelerator->tile_m, full_n = (double)accelerator->tile_n;
    double reuse = side_m * side_n / (side_m + side_n);
    double share = fmin(reuse * (full_m + full_n) / (full_m * full_n), 1);
    double tiles = ceil((double)work->m / side_m) * ceil((double)work->n / side_n);
    return 2 * (double)work->k * ceil(tiles / units) * units * side_m * side_n / share;
}

/* Attention's operations, with those of its edge. */
static double edged_flops(const struct ls_cluster_accelerator *accelerator,
                          const struct ls_work *work)
{
    return work->flops * (1 + accelerator->attention_edge / (double)work->n);
}

/* The least of what full tiles take and of what those take whose sides are halves of theirs, either
 * way round. */
static double product_flops(const struct ls_cluster_accelerator *accelerator, int accelerators,
                            const struct ls_work *work)
{
    double units = (double)accelerator->units * accelerators, least = INFINITY;
    if (accelerator->units == 0)
        return work->flops;
    for (int64_t m = accelerator->tile_m; m > 0; m = m >= 2 * TILE_LEAST ? m / 2 : 0)
        for (int64_t n = accelerator->tile_n; n > 0; n = n >= 2 * TILE_LEAST ? n / 2 : 0) {
            double one = tiled_flops(accelerator, units, work, (double)m, (double)n);
            double other = tiled_flops(accelerator, units, work, (double)n, (double)m);
            least = fmin(least, fmin(one, other));
        }
    return least;
}

struct ls_work_time ls_cost_work_time(const struct ls_cluster *cluster, int accelerators,
                                      const struct ls_work *work)
{
    const struct ls_cluster_accelerator *accelerator = &cluster->accelerator;
    if (work->m <= 0 || work->n <= 0 || work->k <= 0)
        return (struct ls_work_time){0};
    double measured = measured_work(cluster, accelerators, work);
    if (measured >= 0)
        return (struct ls_work_time){.seconds = measured};
    double rate = ls_cluster_peak(cluster, work->dtype) * accelerators, flops = work->flops;
    if (is_product(work->kind)) {
        rate *= accelerator->product_share;
        flops = product_flops(accelerator, accelerators, work);
    } else if (is_attention(work->kind)) {
        bool backward = work->kind == LS_WORK_ATTENTION_BACKWARD;
        double share = backward ? accelerator->attention_backward_share : 0;
        rate *= share > 0 ? share : accelerator->attention_share;
        flops = edged_flops(accelerator, work);
    } else {
        rate = ls_cluster_peak(cluster, LS_F32) * accelerators;
    }
    double bandwidth = accelerator->bytes_per_s * accelerators * accelerator->pass_share;
    double units_s = flops / rate, memory_s = work->bytes / bandwidth;
    return (struct ls_work_time){.seconds = accelerator->launch_s + fmax(units_s, memory_s),
                                 .units_s = units_s >= memory_s ? units_s : 0,
                                 .memory_s = units_s < memory_s ? memory_s : 0};
}

double ls_cost_work(const struct ls_cluster *cluster, int accelerators, const struct ls_work *work)
{
    return ls_cost_work_time(cluster, accelerators, work).seconds;
}

double ls_cost_slowest(const struct ls_cluster *cluster, double accelerators)
{
    double below = (accelerators - 0.375) / (accelerators + 0.25), low = 0, high = 10;
    if (accelerators <= 1)
        return 1;
    for (int i = 0; i < 50; i++) { /* the normal quantile */
        double x = (low + high) / 2;
        if (1 - erfc(x / sqrt(2)) / 2 < below)
            low = x;
        else
            high = x;
    }
    return 1 + cluster->accelerator.spread * low;
}

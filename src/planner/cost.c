/* How long an op, a collective, a message or a transfer takes on a cluster. */
#include <lockstep/planner/cost.h>

#include <math.h>
#include <stdlib.h>

/* ---- measured works ---------------------------------------------------------------------------
 *
 * Rows of one kind, type and number of threads. What grows with the work is m n k, here its size:
 * time is interpolated as a power of each side between neighbours, and is proportional to size
 * outside of what was measured.
 */

struct rows {
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

/* Between (x0, y0) and (x1, y1) on logarithmic axes. */
static double log_between(double x, double x0, double y0, double x1, double y1)
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
static double rows_by_size(const struct rows *rows, double size, double each)
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
                        : log_between(size, below, below_s, above, above_s);
}

/* Rows are every combination of some m, some n and some k: their numbers in side[3]. */
static bool rows_are_grid(const struct rows *rows, int64_t side[3])
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
static double rows_by_grid(const struct rows *rows, const int64_t side[3], const int64_t x[3])
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
static double rows_by_distance(const struct rows *rows, const int64_t x[3], double bytes)
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

static struct rows rows_of(const struct ls_cluster *cluster, int threads,
                           const struct ls_work *work)
{
    int64_t first = rows_bound(cluster, work, threads, false);
    return (struct rows){cluster->works + first, rows_bound(cluster, work, threads, true) - first};
}

/* Of the work's shape the row whose bytes are nearest to its own, one of all bytes behind those
 * that have some; NULL: none. */
static const struct ls_measured_work *row_nearest(const struct rows *rows,
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
    const struct rows rows = rows_of(cluster, threads, work);
    const struct ls_measured_work *row = row_nearest(&rows, work);
    return row && (row->bytes == 0 || row->bytes == (int64_t)work->bytes) ? row : NULL;
}

/* Negative: nothing like it was measured. */
static double measured_work(const struct ls_cluster *cluster, int threads,
                            const struct ls_work *work)
{
    const struct rows rows = rows_of(cluster, threads, work);
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

/* ---- groups ---------------------------------------------------------------------------------- */

struct ls_cost_group ls_cost_group_of(const struct ls_cluster *cluster, int accelerators,
                                      int64_t first, int64_t ranks, int64_t stride)
{
    struct ls_cost_group group = {.ranks = ranks, .accelerators = accelerators, .level = -1};
    int64_t from = first * accelerators, step = stride * accelerators;
    int64_t to = from + (ranks - 1) * step;
    for (int l = 0; l < cluster->links; l++) {
        int64_t joins = cluster->link[l].joins;
        /* Steps that are shorter than a domain leave none out. */
        int64_t domains = step >= joins ? ranks : to / joins - from / joins + 1;
        group.near[l] = (double)ranks / (double)domains;
        if (group.level < 0 && domains == 1 && ranks > 1)
            group.level = l;
    }
    if (group.level < 0 && ranks > 1)
        group.level = cluster->links - 1;
    return group;
}

static double link_rate(const struct ls_cluster *cluster, const struct ls_cost_group *group, int l)
{
    const struct ls_cluster_link *link = &cluster->link[l];
    double domain = l > 0 ? (double)cluster->link[l - 1].joins : 1;
    double cross = group->shift > 0 ? fmin(group->shift / domain, 1) : 1;
    return link->bytes_per_s * link->share / fmax(link->oversubscription * cross, 1);
}

/* Of domains of each level the group has so many ranks in one; all of them at its own level. */
static double near_of(const struct ls_cost_group *group, int level)
{
    return level < 0 ? 1 : level >= group->level ? (double)group->ranks : group->near[level];
}

void ls_cost_link(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                  double *latency_s, double *bytes_per_s)
{
    double own = group->accelerators > 0 ? group->accelerators : 1;
    *latency_s = 0;
    *bytes_per_s = INFINITY;
    if (group->level < 0)
        return;
    for (int l = 0; l <= group->level; l++) {
        double inside = near_of(group, l - 1);
        /* No two ranks meet at this level. */
        if (near_of(group, l) <= inside)
            continue;
        *latency_s = fmax(*latency_s, cluster->link[l].latency_s);
        *bytes_per_s = fmin(*bytes_per_s, own * inside * link_rate(cluster, group, l));
    }
}

/* A byte that comes is written, read again, and written or added where it belongs. */
#define MEMORY_PASSES 3.0
/* Of units or bandwidth: something is left for what computes. */
#define TAKEN_MOST 0.9

void ls_cost_taken(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                   double *units, double *memory)
{
    const struct ls_cluster_accelerator *accelerator = &cluster->accelerator;
    double latency, rate, own = group->accelerators > 0 ? group->accelerators : 1;
    *units = *memory = 0;
    if (group->level < 0 || accelerator->unit_bytes_per_s <= 0 || accelerator->units == 0)
        return;
    ls_cost_link(cluster, group, &latency, &rate);
    *units =
        fmin(TAKEN_MOST, rate / (own * (double)accelerator->units * accelerator->unit_bytes_per_s));
    *memory = fmin(TAKEN_MOST, MEMORY_PASSES * rate / (own * accelerator->bytes_per_s));
}

/* The mean over the hops of a ring through all ranks, domain by domain: most stay inside. */
static double ring_latency(const struct ls_cluster *cluster, const struct ls_cost_group *group)
{
    double sum = 0;
    for (int l = 0; l <= group->level; l++) {
        /* Hops that leave a domain of the level below, less those that leave one of this. */
        double leave = 1 / near_of(group, l - 1);
        double far = l == group->level ? 0 : 1 / near_of(group, l);
        sum += (leave - far) * cluster->link[l].latency_s;
    }
    return sum;
}

/* From the root of a tree to its leaves, level by level. */
static double tree_latency(const struct ls_cluster *cluster, const struct ls_cost_group *group)
{
    double sum = 0;
    for (int l = 0; l <= group->level; l++)
        sum += ceil(log2(near_of(group, l) / near_of(group, l - 1)) - 1e-9) *
               cluster->link[l].latency_s;
    return sum;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Negative: nothing like it was measured. Less than the smallest measured takes as long as that,
 * more than the largest as much longer as it is larger. */
static double measured_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                            enum ls_comm_kind kind, double bytes)
{
    const struct ls_measured_move *below = NULL, *above = NULL;
    if (group->level != 0)
        return -1;
    for (int64_t i = 0; i < cluster->moves_count && !above; i++) {
        const struct ls_measured_move *move = &cluster->moves[i];
        if (move->kind != kind || move->ranks != group->ranks)
            continue;
        if ((double)move->bytes <= bytes)
            below = move;
        else
            above = move;
    }
    if (!below)
        return above ? above->seconds : -1;
    return above ? log_between(bytes, (double)below->bytes, below->seconds, (double)above->bytes,
                               above->seconds)
                 : below->seconds * bytes / (double)below->bytes;
}

/* Every rank has bytes / n for each: what leaves a domain goes by each rank's own share of the
 * link above it, and the links work side by side. */
static double all_to_all_seconds(const struct ls_cluster *cluster,
                                 const struct ls_cost_group *group, double bytes)
{
    double n = (double)group->ranks, longest = 0;
    double own = group->accelerators > 0 ? group->accelerators : 1;
    for (int l = 0; l <= group->level; l++) {
        const struct ls_cluster_link *link = &cluster->link[l];
        double leaves =
            bytes * (1 - near_of(group, l - 1) / n) / (own * link_rate(cluster, group, l));
        /* Along a ring data pass a quarter of its members, both ways at once. */
        if (link->topology == LS_LINK_RING)
            leaves *= fmax(1, near_of(group, l) / near_of(group, l - 1) / 4);
        longest = fmax(longest, leaves);
    }
    return (n - 1) * ring_latency(cluster, group) + longest;
}

double ls_cost_move(const struct ls_cluster *cluster, const struct ls_cost_group *group,
                    enum ls_comm_kind kind, double bytes)
{
    double latency, rate, n = (double)group->ranks;
    if (group->ranks < 2 || group->level < 0)
        return 0;
    double measured = measured_move(cluster, group, kind, bytes);
    if (measured >= 0)
        return measured;
    ls_cost_link(cluster, group, &latency, &rate);
    double ring = ring_latency(cluster, group), tree = tree_latency(cluster, group);
    bool neighbours = cluster->link[group->level].topology == LS_LINK_RING;
    double moved = bytes * (n - 1) / (n * rate), launch = cluster->accelerator.collective_launch_s;
    switch (kind) {
    case LS_COMM_ALL_GATHER:
    case LS_COMM_REDUCE_SCATTER:
        return launch + ls_ring_seconds(group->ranks, bytes, ring, rate, false);
    case LS_COMM_ALL_REDUCE:
    case LS_COMM_OTHER:
        return launch + 2 * (neighbours ? (n - 1) * ring : fmin((n - 1) * ring, tree)) + 2 * moved;
    case LS_COMM_BROADCAST:
        return launch + (neighbours ? (n - 1) * ring : tree) + bytes / rate;
    case LS_COMM_ALL_TO_ALL:
        return launch + all_to_all_seconds(cluster, group, bytes);
    default:
        return launch + latency + bytes / rate;
    }
}

/* ---- tiers ----------------------------------------------------------------------------------- */

double ls_cost_tier(const struct ls_cluster *cluster, enum ls_tier_kind tier, bool writes,
                    double bytes)
{
    double link = cluster->host_link_bytes_per_s, rate = link;
    if (bytes <= 0 || tier == LS_TIER_DEVICE)
        return 0;
    if (tier == LS_TIER_FILE) {
        double disk = writes ? cluster->disk_write_bytes_per_s : cluster->disk_read_bytes_per_s;
        rate = disk / (double)cluster->accelerators;
        rate = link > 0 ? fmin(rate, link) : rate;
    }
    return rate > 0 ? bytes / rate : INFINITY;
}

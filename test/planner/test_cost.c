/* Costs: exact where they were measured, as the formulas say elsewhere, and never better on a
 * lesser cluster. */
#include "../support/suite.h"

#include <lockstep/planner/cost.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char small[] = "name: small\n"
                            "hosts: 4\n"
                            "accelerators: 8\n"
                            "accelerator:\n"
                            "  name: A\n"
                            "  peak: {fp32: 50 TFLOP/s, bf16: 1000 TFLOP/s}\n"
                            "  memory: 80 GB\n"
                            "  bandwidth: 2 TB/s\n"
                            "  product_share: 0.5\n"
                            "  attention_share: 0.25\n"
                            "  pass_share: 0.5\n"
                            "  launch: 2 us\n"
                            "host_link: 32 GB/s\n"
                            "disk: {read: 8 GB/s, write: 4 GB/s, size: 1 TB}\n"
                            "links:\n"
                            "  - {name: near, joins: 8, latency: 1 us, bandwidth: 400 GB/s}\n"
                            "  - {name: far, joins: 32, latency: 10 us, bandwidth: 50 GB/s,\n"
                            "     topology: fat-tree, oversubscription: 1}\n";

static struct ls_cluster cluster_of(const char *text, const char *more)
{
    char whole[1 << 14];
    struct ls_cluster cluster;
    struct ls_error error = {0};
    snprintf(whole, sizeof whole, "%s%s", text, more);
    assert_ok(ls_cluster_read_text("test", whole, strlen(whole), &cluster, &error), error);
    return cluster;
}

static void set(struct ls_cluster *cluster, const char *path, const char *value)
{
    struct ls_error error = {0};
    assert_ok(ls_cluster_set(cluster, path, value, &error), error);
}

static void near_to(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}

static struct ls_work product(int64_t m, int64_t n, int64_t k)
{
    return (struct ls_work){.kind = LS_WORK_PRODUCT_BT,
                            .dtype = LS_BF16,
                            .m = m,
                            .n = n,
                            .k = k,
                            .flops = 2.0 * (double)m * (double)n * (double)k,
                            .bytes = 2.0 * (double)(m * k + k * n + m * n)};
}

static struct ls_work pass(int64_t elements)
{
    return (struct ls_work){.kind = LS_WORK_ADD,
                            .dtype = LS_BF16,
                            .m = elements,
                            .n = 1,
                            .k = 1,
                            .flops = (double)elements,
                            .bytes = 6.0 * (double)elements};
}

/* ---- works ----------------------------------------------------------------------------------- */

CASE(test_roofline)
{
    struct ls_cluster cluster = cluster_of(small, "");
    struct ls_work large = product(4096, 4096, 4096), thin = product(1, 4096, 4096);
    near_to("compute", ls_cost_work(&cluster, 1, &large), 2e-6 + large.flops / 500e12);
    near_to("memory", ls_cost_work(&cluster, 1, &thin), 2e-6 + thin.bytes / 1e12);
    struct ls_work sum = pass(1 << 20), attention = large;
    near_to("a pass", ls_cost_work(&cluster, 1, &sum), 2e-6 + sum.bytes / 1e12);
    attention.kind = LS_WORK_ATTENTION;
    near_to("attention", ls_cost_work(&cluster, 1, &attention), 2e-6 + large.flops / 250e12);
    near_to("four cores", ls_cost_work(&cluster, 4, &large), 2e-6 + large.flops / 2000e12);
    struct ls_work_time units = ls_cost_work_time(&cluster, 1, &large);
    struct ls_work_time memory = ls_cost_work_time(&cluster, 1, &sum);
    near_to("units", units.units_s, units.seconds - 2e-6);
    near_to("memory", memory.memory_s, memory.seconds - 2e-6);
    assert_true(units.memory_s == 0 && memory.units_s == 0);
    struct ls_work nothing = product(0, 4, 4);
    near_to("nothing", ls_cost_work(&cluster, 1, &nothing), 0);
    ls_cluster_release(&cluster);
}

static struct ls_work attention_of(bool backward, int64_t tokens, int64_t head_dim)
{
    const int64_t all = 16384, heads = 2048 / head_dim, keys = tokens / 2;
    return (struct ls_work){.kind = backward ? LS_WORK_ATTENTION_BACKWARD : LS_WORK_ATTENTION,
                            .dtype = LS_BF16,
                            .m = all * heads,
                            .n = keys,
                            .k = head_dim,
                            .flops = (backward ? 10.0 : 4.0) * (double)(all * keys * 2048)};
}

CASE(test_attention_has_an_edge)
{
    struct ls_cluster cluster = cluster_of(small, "");
    struct ls_work forward = attention_of(false, 1024, 128),
                   backward = attention_of(true, 1024, 128);
    near_to("as the forward", ls_cost_work(&cluster, 1, &backward), 2e-6 + backward.flops / 250e12);
    set(&cluster, "accelerator.attention_backward_share", "0.2");
    set(&cluster, "accelerator.attention_edge", "128");
    near_to("forward", ls_cost_work(&cluster, 1, &forward), 2e-6 + 1.25 * forward.flops / 250e12);
    near_to("backward", ls_cost_work(&cluster, 1, &backward),
            2e-6 + 1.25 * backward.flops / 200e12);
    ls_cluster_release(&cluster);
}

/* Dao 2023, figure 4: TFLOP/s of FlashAttention-2 on an A100 by the tokens of a sequence, 512 to
 * 16,384; causal, forward and backward, 16,384 tokens of 2,048 channels. */
CASE(test_attention_is_as_published)
{
    static const double published[] = {99, 131, 155, 182, 189, 189};
    struct ls_cluster cluster;
    struct ls_error error = {0};
    double worst[2] = {0};
    assert_ok(ls_cluster_read("clusters/a100-80g-1024.yaml", &cluster, &error), error);
    for (int twin = 0; twin < 2; twin++) {
        if (twin)
            set(&cluster, "accelerator.attention_edge", "0");
        for (int i = 0; i < 6; i++) {
            struct ls_work forward = attention_of(false, 512 << i, 128);
            struct ls_work backward = attention_of(true, 512 << i, 128);
            double seconds =
                ls_cost_work(&cluster, 1, &forward) + ls_cost_work(&cluster, 1, &backward);
            double rate = (forward.flops + backward.flops) / seconds / 1e12;
            worst[twin] = fmax(worst[twin], fabs(rate / published[i] - 1));
        }
    }
    printf("at most %.1f %% from the figure; without the edge %.0f %%\n", 100 * worst[0],
           100 * worst[1]);
    assert_true(worst[0] < 0.06 && worst[1] > 0.5);
    ls_cluster_release(&cluster);
}

/* The expected largest of n draws of a normal distribution (Harter 1961). */
CASE(test_the_slowest_of_many)
{
    static const double largest[][2] = {
        {1, 0}, {2, 0.5642}, {10, 1.5388}, {100, 2.5076}, {1000, 3.2414}};
    struct ls_cluster cluster = cluster_of(small, "");
    near_to("alike", ls_cost_slowest(&cluster, 1000), 1);
    set(&cluster, "accelerator.spread", "0.1");
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
        double slowest = ls_cost_slowest(&cluster, largest[i][0]);
        if (fabs(slowest - 1 - 0.1 * largest[i][1]) > 0.003)
            fail_msg("the slowest of %g takes %g", largest[i][0], slowest);
    }
    ls_cluster_release(&cluster);
}

/* 64 x 64 tiles, of which there are no smaller ones, on 100 units: 100 tiles are a wave, 101 are
 * two. */
CASE(test_tiles_quantise)
{
    struct ls_cluster cluster = cluster_of(small, "");
    set(&cluster, "accelerator.units", "100");
    set(&cluster, "accelerator.tile", "64x64");
    set(&cluster, "accelerator.bandwidth", "1000 TB/s");
    struct ls_work wave = product(64 * 10, 64 * 10, 8192);
    struct ls_work more = product(64 * 10 + 1, 64 * 10, 8192);
    double one = ls_cost_work(&cluster, 1, &wave) - 2e-6;
    near_to("a wave", one, wave.flops / 500e12);
    near_to("and a row", ls_cost_work(&cluster, 1, &more) - 2e-6, 2 * one);
    ls_cluster_release(&cluster);
}

/* Sides of tiles that [128, 256] becomes, and their rate: m n / (m + n) of theirs to its. */
static const struct {
    double m, n, rate;
} tiles[] = {{128, 256, 1},  {256, 128, 1},  {128, 128, 0.75}, {64, 256, 0.6},
             {256, 64, 0.6}, {128, 64, 0.5}, {64, 128, 0.5},   {64, 64, 0.375}};

static double tile_s(size_t i, const struct ls_work *work)
{
    double count = ceil((double)work->m / tiles[i].m) * ceil((double)work->n / tiles[i].n);
    double wave = 2 * tiles[i].m * tiles[i].n * (double)work->k / (500e12 / 100) / tiles[i].rate;
    return 2e-6 + ceil(count / 100) * wave;
}

/* The fastest of all tiles counts, and every size is the fastest of some shape. */
CASE(test_the_best_tile_counts)
{
    enum { TILES = sizeof tiles / sizeof *tiles };
    static const int64_t shapes[][2] = {{1280, 2560}, {2560, 1280}, {1280, 1280}, {64, 25600},
                                        {25600, 64},  {64, 12800},  {12800, 64},  {512, 512},
                                        {1281, 2560}, {25600, 128}, {300, 300},   {8192, 8192}};
    bool best_of[TILES] = {false};
    struct ls_cluster cluster = cluster_of(small, "");
    set(&cluster, "accelerator.units", "100");
    set(&cluster, "accelerator.tile", "128x256");
    set(&cluster, "accelerator.bandwidth", "1000 TB/s");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct ls_work work = product(shapes[s][0], shapes[s][1], 8192);
        size_t best = 0;
        for (size_t i = 1; i < TILES; i++)
            best = tile_s(i, &work) < tile_s(best, &work) ? i : best;
        best_of[best] = true;
        near_to("the best tile", ls_cost_work(&cluster, 1, &work), tile_s(best, &work));
    }
    for (size_t i = 0; i < TILES; i++)
        if (!best_of[i])
            fail_msg("no shape takes %g x %g", tiles[i].m, tiles[i].n);
    ls_cluster_release(&cluster);
}

static const char grid[] = "measured:\n"
                           "  works:\n"
                           "    - [product_bt, bf16, 1, 64, 512, 512, 0.0010]\n"
                           "    - [product_bt, bf16, 1, 64, 512, 2048, 0.0030]\n"
                           "    - [product_bt, bf16, 1, 64, 2048, 512, 0.0031]\n"
                           "    - [product_bt, bf16, 1, 64, 2048, 2048, 0.0110]\n"
                           "    - [product_bt, bf16, 1, 1024, 512, 512, 0.0120]\n"
                           "    - [product_bt, bf16, 1, 1024, 512, 2048, 0.0450]\n"
                           "    - [product_bt, bf16, 1, 1024, 2048, 512, 0.0460]\n"
                           "    - [product_bt, bf16, 1, 1024, 2048, 2048, 0.1800]\n"
                           "    - [add, bf16, 1, 1000, 1, 1, 0.00001]\n"
                           "    - [add, bf16, 1, 100, 100, 1, 0.00004]\n"
                           "    - [add, bf16, 1, 1000000, 1, 1, 0.02]\n";
/* The same without its regularity. */
static const char scattered[] = "measured:\n"
                                "  works:\n"
                                "    - [product_bt, bf16, 1, 64, 512, 512, 0.0010]\n"
                                "    - [product_bt, bf16, 1, 64, 2048, 512, 0.0031]\n"
                                "    - [product_bt, bf16, 1, 300, 768, 768, 0.0085]\n"
                                "    - [product_bt, bf16, 1, 1024, 512, 2048, 0.0450]\n"
                                "    - [product_bt, bf16, 1, 1024, 2048, 2048, 0.1800]\n";

CASE(test_measured_is_exact)
{
    const char *const tables[] = {grid, scattered};
    for (int t = 0; t < 2; t++) {
        struct ls_cluster cluster = cluster_of(small, tables[t]);
        for (int64_t i = 0; i < cluster.works_count; i++) {
            const struct ls_measured_work *row = &cluster.works[i];
            struct ls_work work = product(row->m, row->n, row->k);
            work.kind = row->kind;
            near_to("a measured row", ls_cost_work(&cluster, 1, &work), row->seconds);
        }
        /* Another number of threads, type or kind was not measured. */
        struct ls_work work = product(64, 512, 512), other = work, type = work;
        other.kind = LS_WORK_PRODUCT_AT;
        type.dtype = LS_F16;
        assert_true(ls_cost_work(&cluster, 2, &work) < 1e-4);
        assert_true(ls_cost_work(&cluster, 1, &other) < 1e-4);
        assert_true(ls_cost_work(&cluster, 1, &type) < 1e-4);
        ls_cluster_release(&cluster);
    }
}

CASE(test_measured_is_interpolated)
{
    struct ls_cluster cluster = cluster_of(small, grid);
    struct ls_work middle = product(256, 512, 512), beyond = product(4096, 2048, 4096);
    struct ls_work below = product(32, 512, 512), center = product(256, 1024, 1024);
    near_to("half way", ls_cost_work(&cluster, 1, &middle), sqrt(0.0010 * 0.0120));
    near_to("beyond", ls_cost_work(&cluster, 1, &beyond), 8 * 0.1800);
    near_to("below", ls_cost_work(&cluster, 1, &below), 0.0010 / 2);
    double all = 0.0010 * 0.0030 * 0.0031 * 0.0110 * 0.0120 * 0.0450 * 0.0460 * 0.1800;
    near_to("the middle", ls_cost_work(&cluster, 1, &center), pow(all, 1.0 / 8));
    struct ls_work few = pass(100), some = pass(3162), many = pass(4000000);
    near_to("few elements", ls_cost_work(&cluster, 1, &few), 0.000001);
    near_to("some", ls_cost_work(&cluster, 1, &some),
            0.00001 * pow(4, log(3.162) / log(10))); /* 10^3 to 10^4 elements: 4 times */
    near_to("many", ls_cost_work(&cluster, 1, &many), 0.08);
    ls_cluster_release(&cluster);
}

/* Ops of one shape that move other bytes have rows of their own. */
CASE(test_rows_are_held_apart_by_bytes)
{
    struct ls_cluster cluster =
        cluster_of(small, "measured:\n"
                          "  works:\n"
                          "    - [update, fp32, 1, 1000, 1, 1, 28000, 3e-6]\n"
                          "    - [update, fp32, 1, 1000, 1, 1, 20000, 2e-6]\n"
                          "    - [update, fp32, 1, 9000, 1, 1, 252000, 27e-6]\n"
                          "    - [fill, u8, 1, 1000, 1, 1, 1e-6]\n");
    const struct {
        int64_t elements;
        double bytes, seconds;
        bool exact;
    } cases[] = {{1000, 28000, 3e-6, true},    {1000, 20000, 2e-6, true},
                 {1000, 21000, 2e-6, false},   {1000, 40000, 3e-6, false},
                 {3000, 84000, 9e-6, false},   {3000, 60000, 6e-6, false},
                 {18000, 504000, 54e-6, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_work work = {.kind = LS_WORK_UPDATE,
                               .dtype = LS_F32,
                               .m = cases[i].elements,
                               .n = 1,
                               .k = 1,
                               .bytes = cases[i].bytes};
        near_to("an update", ls_cost_work(&cluster, 1, &work), cases[i].seconds);
        assert_int_equal(ls_cost_row(&cluster, 1, &work) != NULL, cases[i].exact);
    }
    struct ls_work fill = {LS_WORK_FILL, LS_U8, 1000, 1, 1, 0, 1000};
    assert_non_null(ls_cost_row(&cluster, 1, &fill));
    assert_null(ls_cost_row(&cluster, 2, &fill));
    ls_cluster_release(&cluster);
}

/* ---- drawn ----------------------------------------------------------------------------------- */

static uint64_t drawn_index;
static double draw(double low, double high)
{
    uint32_t counter[4] = {(uint32_t)drawn_index++, 0, 0, 0}, word[4];
    ls_philox(ls_philox_key_of(7, "test_cost"), counter, word);
    return low * pow(high / low, ls_uniform_of(word[0]));
}
static int64_t draw_int(int64_t low, int64_t high)
{
    return ls_min(high, (int64_t)draw((double)low, (double)high + 1));
}

CASE(test_larger_never_takes_less)
{
    const char *const tables[] = {grid, scattered, "", ""};
    for (int t = 0; t < 4; t++) {
        struct ls_cluster cluster = cluster_of(small, tables[t]);
        if (t == 3)
            set(&cluster, "accelerator.units", "108");
        for (int i = 0; i < 3000; i++) {
            int64_t x[3] = {draw_int(1, 4096), draw_int(1, 8192), draw_int(1, 8192)};
            struct ls_work one = product(x[0], x[1], x[2]);
            int axis = (int)draw_int(1, 3) - 1;
            if (t == 1) /* of rows that are no grid: between one of them and what was asked */
                one = product(300, 768, 768), x[0] = 300, x[1] = x[2] = 768;
            x[axis] = (int64_t)((double)x[axis] * draw(1, 4)) + 1;
            struct ls_work two = product(x[0], x[1], x[2]);
            double less = ls_cost_work(&cluster, 1, &one), more = ls_cost_work(&cluster, 1, &two);
            if (more < less * (1 - 1e-12))
                fail_msg("table %d: %lld x %lld x %lld takes %.9g, less than %.9g", t,
                         (long long)x[0], (long long)x[1], (long long)x[2], more, less);
            struct ls_work few = pass(draw_int(1, 1 << 22)), many = pass(few.m + draw_int(1, 1000));
            assert_true(ls_cost_work(&cluster, 1, &few) <=
                        ls_cost_work(&cluster, 1, &many) * (1 + 1e-12));
        }
        ls_cluster_release(&cluster);
    }
}

/* Products cut into pieces take no less than whole ones, tiles or not; a tile more to choose from
 * takes no longer. */
CASE(test_pieces_never_take_less)
{
    struct ls_cluster cluster = cluster_of(small, "");
    set(&cluster, "accelerator.units", "108");
    int dearer = 0;
    for (int i = 0; i < 3000; i++) {
        int64_t pieces = draw_int(2, 16), m = draw_int(1, 512);
        struct ls_work piece = product(m, draw_int(1, 8192), draw_int(1, 8192));
        struct ls_work whole = product(m * pieces, piece.n, piece.k);
        set(&cluster, "accelerator.tile", "128x256");
        double one = ls_cost_work(&cluster, 1, &piece), all = ls_cost_work(&cluster, 1, &whole);
        if (all > (double)pieces * one * (1 + 1e-12))
            fail_msg("%lld pieces of %lld x %lld x %lld take %.9g, all at once %.9g",
                     (long long)pieces, (long long)m, (long long)piece.n, (long long)piece.k,
                     (double)pieces * one, all);
        dearer += (double)pieces * one > 1.1 * all;
        set(&cluster, "accelerator.tile", "128x128");
        double fewer = ls_cost_work(&cluster, 1, &piece);
        assert_true(fewer <= one * (1 + 1e-12)); /* full at half the side: the others are faster */
    }
    assert_true(dearer > 1000);
    ls_cluster_release(&cluster);
}

/* ---- groups and moves ------------------------------------------------------------------------ */

CASE(test_groups)
{
    static const struct {
        int accelerators;
        int64_t first, ranks, stride;
        int level;
        double near0, near1;
    } cases[] = {
        {1, 0, 1, 1, -1, 1, 1},  {1, 0, 8, 1, 0, 8, 8},   {1, 4, 8, 1, 1, 4, 8},
        {1, 0, 4, 8, 1, 1, 4},   {1, 0, 16, 2, 1, 4, 16}, {1, 3, 2, 4, 0, 2, 2},
        {1, 3, 2, 5, 1, 1, 2},   {4, 0, 2, 1, 0, 2, 2},   {4, 0, 4, 2, 1, 1, 4},
        {1, 0, 32, 1, 1, 8, 32}, {8, 0, 4, 1, 1, 1, 4},
    };
    struct ls_cluster cluster = cluster_of(small, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_cost_group group = ls_cost_group_of(
            &cluster, cases[i].accelerators, cases[i].first, cases[i].ranks, cases[i].stride);
        if (group.level != cases[i].level || group.near[0] != cases[i].near0 ||
            group.near[1] != cases[i].near1)
            fail_msg("case %zu: level %d, near %g and %g", i, group.level, group.near[0],
                     group.near[1]);
        /* The same by counting. */
        int64_t domains = 0, last = -1;
        for (int64_t r = 0; r < cases[i].ranks; r++) {
            int64_t at = (cases[i].first + r * cases[i].stride) * cases[i].accelerators / 8;
            domains += at != last;
            last = at;
        }
        near_to("near", group.near[0], (double)cases[i].ranks / (double)domains);
    }
    ls_cluster_release(&cluster);
}

static double move_s(const struct ls_cluster *cluster, int64_t first, int64_t ranks, int64_t stride,
                     enum ls_comm_kind kind, double bytes)
{
    struct ls_cost_group group = ls_cost_group_of(cluster, 1, first, ranks, stride);
    return ls_cost_move(cluster, &group, kind, bytes);
}

CASE(test_moves_are_the_formulas)
{
    struct ls_cluster c = cluster_of(small, "");
    const double s = 1e9, few = 1000, a = 1e-6, b = 400e9, A = 10e-6, B = 50e9;
    near_to("one rank", move_s(&c, 0, 1, 1, LS_COMM_ALL_REDUCE, s), 0);
    near_to("gather", move_s(&c, 0, 8, 1, LS_COMM_ALL_GATHER, s), ls_ring_seconds(8, s, a, b, 0));
    near_to("scatter", move_s(&c, 0, 4, 8, LS_COMM_REDUCE_SCATTER, s),
            ls_ring_seconds(4, s, A, B, 0));
    near_to("reduce", move_s(&c, 0, 8, 1, LS_COMM_ALL_REDUCE, few),
            ls_tree_seconds(8, few, a, b, 1));
    near_to("two", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, s), ls_ring_seconds(2, s, a, b, 1));
    near_to("broadcast", move_s(&c, 0, 4, 8, LS_COMM_BROADCAST, s), ls_tree_seconds(4, s, A, B, 0));
    near_to("message", move_s(&c, 0, 2, 8, LS_COMM_SEND, s), A + s / B);
    /* 8 cards of a host, but no faster than inside of it. */
    near_to("all", move_s(&c, 0, 32, 1, LS_COMM_ALL_GATHER, s),
            31 * (7.0 / 8 * a + A / 8) + s * 31 / (32 * 400e9));
    near_to("half", move_s(&c, 0, 16, 2, LS_COMM_ALL_GATHER, s),
            15 * (3.0 / 4 * a + A / 4) + s * 15 / (16 * 200e9));
    near_to("tree of two levels", move_s(&c, 0, 32, 1, LS_COMM_OTHER, 0), 2 * (3 * a + 2 * A));
    /* Each alone: 24 of 32 parts leave the host by one's own card. */
    near_to("all to all", move_s(&c, 0, 32, 1, LS_COMM_ALL_TO_ALL, s),
            31 * (7.0 / 8 * a + A / 8) + s * 24 / 32 / B);
    set(&c, "link.far.share", "0.8"); /* what headers leave */
    near_to("a share", move_s(&c, 0, 4, 8, LS_COMM_ALL_GATHER, s),
            ls_ring_seconds(4, s, A, 0.8 * B, 0));
    near_to("of a message", move_s(&c, 0, 2, 8, LS_COMM_SEND, s), A + s / (0.8 * B));
    set(&c, "link.far.share", "1");
    set(&c, "link.far.oversubscription", "4");
    near_to("where all talk", move_s(&c, 0, 4, 8, LS_COMM_ALL_GATHER, s),
            ls_ring_seconds(4, s, A, B / 4, 0));
    /* Between stages of 4 only half of a host's 8 cross its edge: a rate of 2 in 4. */
    struct ls_cost_group stages = ls_cost_group_of(&c, 1, 4, 2, 4);
    stages.shift = 4;
    near_to("some cross", ls_cost_move(&c, &stages, LS_COMM_SEND, s), A + s / (B / 2));
    stages.shift = 1;
    near_to("one crosses", ls_cost_move(&c, &stages, LS_COMM_SEND, s), A + s / B);
    stages.shift = 16;
    near_to("all cross", ls_cost_move(&c, &stages, LS_COMM_SEND, s), A + s / (B / 4));
    set(&c, "link.near.topology", "ring");
    near_to("neighbours", move_s(&c, 0, 8, 1, LS_COMM_ALL_REDUCE, few),
            ls_ring_seconds(8, few, a, b, 1));
    struct ls_cost_group cores = ls_cost_group_of(&c, 4, 0, 2, 1);
    near_to("the links of four", ls_cost_move(&c, &cores, LS_COMM_SEND, s), a + s / (4 * b));
    ls_cluster_release(&c);
}

/* What a group's rate takes of an accelerator's units and memory; of a machine whose units move
 * nothing, nothing. */
CASE(test_moves_take_units_and_bandwidth)
{
    struct ls_cluster c = cluster_of(small, "");
    struct ls_cost_group host = ls_cost_group_of(&c, 1, 0, 8, 1);
    struct ls_cost_group hosts = ls_cost_group_of(&c, 1, 0, 4, 8), one = host;
    double units, memory;
    ls_cost_taken(&c, &host, &units, &memory);
    assert_true(units == 0 && memory == 0);
    set(&c, "accelerator.units", "100");
    set(&c, "accelerator.unit_bandwidth", "20 GB/s");
    ls_cost_taken(&c, &host, &units, &memory);
    near_to("units for 400 GB/s", units, 0.2);
    near_to("memory for 400 GB/s", memory, 3 * 400e9 / 2e12);
    ls_cost_taken(&c, &hosts, &units, &memory);
    near_to("units for one card", units, 0.025);
    near_to("memory for one card", memory, 3 * 50e9 / 2e12);
    set(&c, "accelerator.unit_bandwidth", "1 B/s"); /* something is left */
    ls_cost_taken(&c, &hosts, &units, &memory);
    assert_true(units > 0.5 && units < 1);
    one.level = -1;
    ls_cost_taken(&c, &one, &units, &memory);
    assert_true(units == 0 && memory == 0);
    ls_cluster_release(&c);
}

CASE(test_measured_moves)
{
    struct ls_cluster c = cluster_of(small, "measured:\n"
                                            "  moves:\n"
                                            "    - [all_reduce, 2, 1000, 0.001]\n"
                                            "    - [all_reduce, 2, 100000, 0.004]\n"
                                            "    - [all_reduce, 4, 1000, 0.003]\n");
    near_to("a row", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 1000), 0.001);
    near_to("between", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 10000), 0.002);
    near_to("above", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 200000), 0.008);
    near_to("below", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 1), 0.001);
    near_to("none", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 0), 0.001);
    near_to("four ranks", move_s(&c, 0, 4, 1, LS_COMM_ALL_REDUCE, 2000), 0.006);
    /* Three ranks, another kind and another level were not measured. */
    near_to("three", move_s(&c, 0, 3, 1, LS_COMM_ALL_REDUCE, 1e9),
            ls_ring_seconds(3, 1e9, 1e-6, 400e9, 1));
    near_to("a gather", move_s(&c, 0, 2, 1, LS_COMM_ALL_GATHER, 1e9),
            ls_ring_seconds(2, 1e9, 1e-6, 400e9, 0));
    near_to("far", move_s(&c, 0, 2, 8, LS_COMM_ALL_REDUCE, 1e9),
            ls_ring_seconds(2, 1e9, 10e-6, 50e9, 1));
    /* Their launch is in what was measured. */
    set(&c, "accelerator.collective_launch", "9 us");
    near_to("launched", move_s(&c, 0, 2, 8, LS_COMM_ALL_REDUCE, 1e9),
            9e-6 + ls_ring_seconds(2, 1e9, 10e-6, 50e9, 1));
    near_to("a row", move_s(&c, 0, 2, 1, LS_COMM_ALL_REDUCE, 1000), 0.001);
    ls_cluster_release(&c);
}

CASE(test_tiers)
{
    struct ls_cluster c = cluster_of(small, "");
    near_to("host", ls_cost_tier(&c, LS_TIER_HOST, true, 32e9), 1);
    near_to("read", ls_cost_tier(&c, LS_TIER_FILE, false, 1e9), 1);
    near_to("write", ls_cost_tier(&c, LS_TIER_FILE, true, 1e9), 2);
    near_to("device", ls_cost_tier(&c, LS_TIER_DEVICE, true, 1e9), 0);
    set(&c, "disk.read", "1 TB/s");
    near_to("no faster than the link", ls_cost_tier(&c, LS_TIER_FILE, false, 32e9), 1);
    set(&c, "disk.read", "0");
    assert_true(isinf(ls_cost_tier(&c, LS_TIER_FILE, false, 1)));
    near_to("of nothing", ls_cost_tier(&c, LS_TIER_FILE, false, 0), 0);
    ls_cluster_release(&c);
}

/* ---- laws ------------------------------------------------------------------------------------ */

static struct ls_cluster draw_cluster(void)
{
    struct ls_cluster c = cluster_of(small, "");
    struct ls_cluster_accelerator *a = &c.accelerator;
    c.hosts = draw_int(2, 512);
    c.link[1].joins = 8 * c.hosts;
    for (int i = 0; i < 3; i++)
        a->peak[i] = draw(1e9, 1e15);
    a->bytes_per_s = draw(1e9, 1e13);
    a->units = draw_int(1, 200) - 1;
    a->launch_s = draw(1e-9, 1e-5);
    a->collective_launch_s = draw(1e-9, 1e-5);
    a->attention_backward_share = draw(0.01, 0.5);
    a->attention_edge = draw(1, 500);
    for (int l = 0; l < 2; l++) {
        c.link[l].latency_s = draw(1e-8, 1e-3);
        c.link[l].bytes_per_s = draw(1e6, 1e12);
        c.link[l].share = draw(0.1, 1);
        c.link[l].topology = (enum ls_link_topology)(draw_int(1, 3) - 1);
    }
    c.link[1].oversubscription = draw(1, 8);
    return c;
}

/* Seconds of some works, moves and transfers. */
enum { TIMES = 40 };
static void times_of(const struct ls_cluster *c, uint64_t seed, double *times)
{
    uint64_t kept = drawn_index;
    drawn_index = seed;
    for (int i = 0; i < TIMES; i++) {
        struct ls_work work = product(draw_int(1, 8192), draw_int(1, 8192), draw_int(1, 8192));
        work.kind = (enum ls_work_kind)(draw_int(1, LS_WORK_KINDS) - 1);
        work.dtype = (enum ls_dtype)(draw_int(1, 3) - 1);
        int64_t stride = draw_int(1, 16), first = draw_int(1, 8) - 1;
        struct ls_cost_group group = ls_cost_group_of(c, 1, first, draw_int(2, 128), stride);
        enum ls_comm_kind kind = (enum ls_comm_kind)(draw_int(1, LS_COMM_KINDS) - 1);
        double bytes = draw(1, 1e10);
        times[i] = i % 3 == 0   ? ls_cost_work(c, 1, &work)
                   : i % 3 == 1 ? ls_cost_move(c, &group, kind, bytes)
                                : ls_cost_tier(c, LS_TIER_HOST + i % 2, i % 4 < 2, bytes);
        if (!isfinite(times[i]) || times[i] < 0)
            fail_msg("time %d is %g", i, times[i]);
    }
    drawn_index = kept;
}

/* Each figure alone made better; then all times are at most what they were, and the twin, made
 * worse, is seen to take longer somewhere. */
CASE(test_better_is_never_slower)
{
    static const struct {
        size_t at;
        bool less; /* is better */
    } figures[] = {
#define FIGURE(field, less) {offsetof(struct ls_cluster, field), less}
        FIGURE(accelerator.peak[0], false),
        FIGURE(accelerator.peak[1], false),
        FIGURE(accelerator.peak[2], false),
        FIGURE(accelerator.bytes_per_s, false),
        FIGURE(accelerator.product_share, false),
        FIGURE(accelerator.attention_share, false),
        FIGURE(accelerator.attention_backward_share, false),
        FIGURE(accelerator.attention_edge, true),
        FIGURE(accelerator.collective_launch_s, true),
        FIGURE(accelerator.pass_share, false),
        FIGURE(accelerator.launch_s, true),
        FIGURE(link[0].latency_s, true),
        FIGURE(link[1].latency_s, true),
        FIGURE(link[0].bytes_per_s, false),
        FIGURE(link[1].bytes_per_s, false),
        FIGURE(link[0].share, false),
        FIGURE(link[1].share, false),
        FIGURE(link[1].oversubscription, true),
        FIGURE(host_link_bytes_per_s, false),
        FIGURE(disk_read_bytes_per_s, false),
        FIGURE(disk_write_bytes_per_s, false),
    };
    enum { FIGURES = sizeof figures / sizeof *figures };
    int seen[FIGURES] = {0};
    for (int i = 0; i < 200 * (int)FIGURES; i++) {
        int f = i % (int)FIGURES;
        struct ls_cluster c = draw_cluster(), better = c, worse = c;
        double was[TIMES], is[TIMES], bad[TIMES], by = draw(1.01, 10);
        *(double *)((char *)&better + figures[f].at) *= figures[f].less ? 1 / by : by;
        *(double *)((char *)&worse + figures[f].at) *= figures[f].less ? 100 : 0.01;
        uint64_t seed = (uint64_t)draw_int(1, 1 << 30);
        times_of(&c, seed, was);
        times_of(&better, seed, is);
        times_of(&worse, seed, bad);
        for (int t = 0; t < TIMES; t++) {
            if (is[t] > was[t] * (1 + 1e-12))
                fail_msg("figure %d, %g times better: time %d is %.9g after %.9g", f, by, t, is[t],
                         was[t]);
            seen[f] += bad[t] > was[t] * 1.01;
        }
        ls_cluster_release(&c);
    }
    for (int f = 0; f < (int)FIGURES; f++)
        if (!seen[f])
            fail_msg("figure %d changes no time", f);
}

SUITE_MAIN(NULL, NULL)

/* Cluster files: what ships loads, what is written reads back, and each broken figure is named with
 * its line. */
#include "../support/suite.h"
#include "planner/cluster_private.h"

#include <lockstep/base/file.h>
#include <lockstep/planner/cluster.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char good[] =
    "name: two hosts\n"                               /* 1 */
    "source: [a paper, a datasheet]\n"                /* 2 */
    "hosts: 2\n"                                      /* 3 */
    "accelerators: 4\n"                               /* 4 */
    "accelerator:\n"                                  /* 5 */
    "  name: A\n"                                     /* 6 */
    "  peak: {bf16: 100 TFLOP/s, fp32: 10 TFLOP/s}\n" /* 7 */
    "  memory: 80 GiB\n"                              /* 8 */
    "  bandwidth: 2 TB/s\n"                           /* 9 */
    "  product_share: 0.5\n"                          /* 10 */
    "  tile: [64, 128]\n"                             /* 11 */
    "links:\n"                                        /* 12 */
    "  - {name: near, joins: 4, latency: 0, bandwidth: 100 GB/s, share: 0.9}\n"
    "  - {name: far, joins: 8, latency: 5 us, bandwidth: 200 Gbit/s,\n"
    "     topology: fat-tree, oversubscription: 2, overlap: 0.5}\n" /* 15 */
    "restart: 2 min\n"                                              /* 16 */
    "measured:\n"                                                   /* 17 */
    "  works:\n"                                                    /* 18 */
    "    - [product, fp32, 2, 10, 20, 30, 1 ms]\n"                  /* 19 */
    "    - [add, bf16, 1, 10, 20, 1, 0.5]\n"                        /* 20 */
    "    - [product, fp32, 1, 10, 20, 30, 0.25]\n"                  /* 21 */
    "  moves:\n"                                                    /* 22 */
    "    - [send, 2, 1000, 1e-6]\n";                                /* 23 */

static int read_text(const char *text, struct ls_cluster *cluster, struct ls_error *error)
{
    *error = (struct ls_error){0};
    return ls_cluster_read_text("c.yaml", text, strlen(text), cluster, error);
}

static struct ls_cluster read_good(void)
{
    struct ls_cluster cluster;
    struct ls_error error;
    assert_ok(read_text(good, &cluster, &error), error);
    return cluster;
}

CASE(test_figures_are_read)
{
    struct ls_cluster c = read_good();
    assert_string_equal(c.name, "two hosts");
    assert_true(c.hosts == 2 && c.accelerators == 4 && c.links == 2);
    assert_true(ls_cluster_peak(&c, LS_BF16) == 100e12 && ls_cluster_peak(&c, LS_F32) == 10e12);
    assert_true(ls_cluster_peak(&c, LS_F16) == 100e12); /* as bf16 */
    assert_true(c.accelerator.memory_bytes == 80.0 * (1 << 30));
    assert_true(c.accelerator.bytes_per_s == 2e12);
    assert_true(c.accelerator.tile_m == 64 && c.accelerator.tile_n == 128);
    assert_true(c.accelerator.product_share == 0.5 && c.accelerator.pass_share == 0.85);
    assert_true(c.link[0].latency_s == 0 && c.link[0].topology == LS_LINK_FULL);
    assert_true(c.link[1].latency_s == 5e-6 && c.link[1].bytes_per_s == 25e9);
    assert_true(c.link[1].topology == LS_LINK_FAT_TREE && c.link[1].oversubscription == 2);
    assert_true(c.link[0].overlap == 0 && c.link[1].overlap == 0.5);
    assert_true(c.link[0].share == 0.9 && c.link[1].share == 1);
    assert_true(c.restart_s == 120 && c.overlap == 1 && c.power_overhead == 1);
    assert_int_equal(c.works_count, 3); /* sorted */
    assert_true(c.works[0].kind == LS_WORK_PRODUCT && c.works[0].threads == 1);
    assert_true(c.works[1].threads == 2 && c.works[1].seconds == 1e-3);
    assert_true(c.works[2].kind == LS_WORK_ADD && c.works[2].dtype == LS_BF16);
    assert_true(c.moves_count == 1 && c.moves[0].kind == LS_COMM_SEND && c.moves[0].bytes == 1000);
    ls_cluster_release(&c);
}

/* ---- broken files ---------------------------------------------------------------------------- */

/* `from` of the good file is `to`; the error says all of `what`, and begins at that line. */
static const struct {
    const char *from, *to;
    int line;
    const char *what;
} broken[] = {
    {"accelerators: 4", "accelerators: 0", 4, "accelerators = 0: expected a whole number from 1"},
    {"accelerators: 4", "accelerators: -4", 4, "accelerators = -4"},
    {"accelerators: 4", "accelerators: 4.5", 4, "accelerators = 4.5"},
    {"accelerators: 4\n", "", 1, "accelerators is missing: expected a whole number"},
    {"hosts: 2", "hosts: 3", 14, "the outermost: expected all 12"},
    {"hosts: 2", "hosts:", 3, "hosts = (nothing)"},
    {"hosts: 2", "hosts: [2, 3]", 3, "hosts = (not one value)"},
    {"hosts: 2", "hosts: 99999999999999999999", 3, "hosts = 99999999999999999999"},
    {"hosts: 2", "hosts: 2\nhosts: 2", 4, "hosts is given twice (first on line 3)"},
    {"name: A", "name: \"\"", 6, "accelerator.name"},
    {"name: A", "name: \"\\u00e9\"", 6, "printable ASCII"},
    {"bf16: 100 TFLOP/s", "bf17: 1", 7,
     "unknown key accelerator.peak.bf17; did you mean "
     "accelerator.peak.bf16?"},
    {"bf16: 100 TFLOP/s, ", "", 1, "accelerator.peak.bf16 is missing"},
    {"100 TFLOP/s", "100 TB/s", 7,
     "accelerator.peak.bf16 = 100 TB/s: expected operations a "
     "second"},
    {"100 TFLOP/s", ".nan", 7, "accelerator.peak.bf16 = .nan"},
    {"100 TFLOP/s", "nan", 7, "accelerator.peak.bf16 = nan"},
    {"100 TFLOP/s", ".inf", 7, "accelerator.peak.bf16 = .inf"},
    {"100 TFLOP/s", "0x10", 7, "accelerator.peak.bf16 = 0x10"},
    {"100 TFLOP/s", "1e999", 7, "accelerator.peak.bf16 = 1e999"},
    {"80 GiB", "0", 8, "accelerator.memory = 0: expected bytes from 1 B"},
    {"80 GiB", "80 GiB/s", 8, "accelerator.memory = 80 GiB/s"},
    {"80 GiB", "80", 8, "accelerator.memory = 80: expected bytes from 1 B"}, /* of which unit? */
    {"2 TB/s", "0", 9, "accelerator.bandwidth = 0: expected a rate from 1 B/s"},
    {"2 TB/s", "-2 TB/s", 9, "accelerator.bandwidth = -2 TB/s"},
    {"product_share: 0.5", "product_share: 1.5", 10,
     "accelerator.product_share = 1.5: expected a "
     "number from 1e-06 to 1"},
    {"product_share: 0.5", "product_share: 0", 10, "accelerator.product_share = 0"},
    {"product_share: 0.5", "product_shear: 0.5", 10, "did you mean accelerator.product_share?"},
    {"[64, 128]", "[64]", 11, "two whole numbers"},
    {"[64, 128]", "[64, 128, 3]", 11, "at most 2 plain values"},
    {"[64, 128]", "[64, 0]", 11, "accelerator.tile = [64, 0]"},
    {"[64, 128]", "64 x 128 x 2", 11, "accelerator.tile = 64 x 128 x 2"},
    {"joins: 4,", "joins: 8,", 14, "links.joins = 8 of far: expected more than the 8 that near"},
    {"joins: 4,", "joins: 9,", 14, "links.joins = 8 of far: expected more than the 9 that near"},
    {"joins: 8", "joins: 6", 14, "links.joins = 6 of far, the outermost: expected all 8"},
    {"latency: 0,", "latency: -1,", 13, "links.latency = -1: expected a time from 0"},
    {"latency: 0,", "latency: 3 m,", 13, "links.latency = 3 m"},
    {"latency: 0, ", "", 13, "links.latency is missing"},
    {"bandwidth: 100 GB/s", "bandwidth: 0", 13, "links.bandwidth = 0"},
    {"bandwidth: 100 GB/s", "bandwith: 1", 13,
     "unknown key links.bandwith; did you mean "
     "links.bandwidth?"},
    {"topology: fat-tree", "topology: torus", 15,
     "links.topology = torus: expected full, ring or "
     "fat-tree"},
    {"topology: fat-tree, ", "", 14, "only a fat tree is oversubscribed"},
    {"overlap: 0.5", "overlap: 1.5", 15, "links.overlap = 1.5: expected a number from 0 to 1"},
    {"oversubscription: 2", "oversubscription: 0.5", 15, "links.oversubscription = 0.5"},
    {"name: far", "name: near", 14, "link 1 has this name too"},
    {"name: far", "name: inter", 14, "expected another name"},
    {"restart: 2 min", "restart: soon", 16, "restart = soon: expected a time"},
    {"restart: 2 min", "restrat: 2 min", 16, "unknown key restrat; did you mean restart?"},
    {"restart: 2 min", "overlap: 1.01", 16, "overlap = 1.01: expected a number from 0 to 1"},
    {"restart: 2 min", "power: 5", 16, "power is a group"},
    {"restart: 2 min", "power: {overhead: 0.9}", 16, "power.overhead = 0.9"},
    {"restart: 2 min", "power.host: 5", 16, "a key without dots"},
    {"restart: 2 min", "restart: !!str 2", 16, "tags are not supported"},
    {"restart: 2 min", "restart: *x", 16, ""},
    {"restart: 2 min", "links: []", 16, "links is given twice"},
    {"product, fp32, 2", "produkt, fp32, 2", 19, "measured.works: expected rows"},
    {"product, fp32, 2", "product, fp31, 2", 19, "measured.works: expected rows"},
    {"product, fp32, 2", "product, fp32, 0", 19, "measured.works: expected rows"},
    {"product, fp32, 2", "product, fp32, 1", 21, "the same is measured on line 19"},
    {"30, 1 ms", "30, 0", 19, "measured.works: expected rows"},
    {"30, 1 ms", "30", 19, "measured.works: expected rows"},
    {"[send, 2, 1000, 1e-6]", "[send, 1, 1000, 1e-6]", 23, "measured.moves: expected rows"},
    {"[send, 2, 1000, 1e-6]", "[sent, 2, 1000, 1e-6]", 23, "measured.moves: expected rows"},
    {"[send, 2, 1000, 1e-6]", "{send: 2}", 23, "a measured row in brackets"},
    {"source: [a paper, a datasheet]", "source: {a: b}", 2, "source: expected a text"},
};

static void replaced(const char *from, const char *to, char *text, size_t bytes)
{
    const char *at = strstr(good, from);
    assert_non_null(at);
    snprintf(text, bytes, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
}

CASE(test_broken_figures_are_named)
{
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char text[4096], where[32];
        struct ls_cluster cluster;
        struct ls_error error;
        replaced(broken[i].from, broken[i].to, text, sizeof text);
        if (read_text(text, &cluster, &error) != LS_ECONFIG)
            fail_msg("`%s` is read, or not refused: %s", broken[i].to, error.text);
        snprintf(where, sizeof where, "c.yaml:%d:", broken[i].line);
        if (strncmp(error.text, where, strlen(where)) || !strstr(error.text, broken[i].what))
            fail_msg("`%s`: %s, expected %s ... %s", broken[i].to, error.text, where,
                     broken[i].what);
        /* The key, if the error is about one, is its first word, or behind "unknown key ". */
        const char *said = strchr(error.text, ' ') + 1;
        said += 12 * !strncmp(said, "unknown key ", 12);
        size_t length = strlen(error.key);
        bool about = !strstr(error.text, "not YAML") && !strstr(error.text, "are not supported");
        if (about && strncmp(said, "expected", 8) &&
            (!length || strncmp(said, error.key, length) || !strchr(": ;", said[length])))
            fail_msg("%s: it is said to be about \"%s\"", error.text, error.key);
        if (about && !length && strncmp(said, "expected `key", 13))
            fail_msg("%s: about no key", error.text);
    }
}

/* A word in the place of a file. */
CASE(test_files_that_there_are)
{
    static const char *const cases[][2] = {
        {"h100", "; there are clusters/h100-16384-roce.yaml, clusters/h100-2048.yaml"},
        {"none/MI300X.yaml", "; there are clusters/mi300x-1024-roce.yaml, clusters/mi300x-1024"},
        {"none", "; there are clusters/a100-80g-1024.yaml, clusters/b200-1024.yaml, "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_cluster cluster;
        struct ls_error error = {0};
        assert_int_equal(ls_cluster_read(cases[i][0], &cluster, &error), LS_EIO);
        assert_text_contains(error.text, cases[i][1]);
    }
}

/* Of an inner link joins is a multiple; the last domain below the outermost need not be full. */
CASE(test_links_fit_together)
{
    static const struct {
        int64_t joins[3];
        bool fits;
    } cases[] = {{{2, 4, 8}, true},  {{3, 6, 8}, true},  {{3, 4, 8}, false},
                 {{2, 5, 8}, false}, {{1, 4, 8}, true},  {{4, 4, 8}, false},
                 {{4, 2, 8}, false}, {{2, 4, 9}, false}, {{8, 16, 8}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        struct ls_cluster cluster;
        struct ls_error error;
        int used =
            snprintf(text, sizeof text, "%.*slinks:\n", (int)(strstr(good, "links") - good), good);
        for (int l = 0; l < 3; l++)
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "- {name: l%d, joins: %d, latency: 0, bandwidth: 1 GB/s}\n", l,
                             (int)cases[i].joins[l]);
        int status = read_text(text, &cluster, &error);
        if (cases[i].fits != (status == LS_OK))
            fail_msg("case %zu: %s", i, error.text);
        if (!status)
            ls_cluster_release(&cluster);
    }
}

CASE(test_other_texts_are_refused)
{
    static const char *const texts[] = {"",        "[1, 2]",       "hosts",           "\t- a: [",
                                        "a: b: c", "\xff\xfe\x01", "--- {}\n--- {}\n"};
    struct ls_cluster cluster;
    struct ls_error error;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(read_text(texts[i], &cluster, &error), LS_ECONFIG);
        assert_true(strncmp(error.text, "c.yaml:", 7) == 0);
    }
    assert_int_equal(ls_cluster_read("/nowhere/at/all.yaml", &cluster, &error), LS_EIO);
    assert_int_equal(ls_cluster_read("/dev/zero", &cluster, &error), LS_ECONFIG);
    /* One accelerator needs no link. */
    assert_int_equal(read_text("name: a\nhosts: 1\naccelerators: 1\naccelerator: {name: b, peak: "
                               "{bf16: 1 G}, memory: 1 Gi, bandwidth: 1 G}\n",
                               &cluster, &error),
                     LS_OK);
    ls_cluster_release(&cluster);
    /* libfyaml reads it for ever. */
    assert_int_equal(read_text("%-\305", &cluster, &error), LS_ECONFIG);
    assert_string_equal(error.text, "c.yaml:1:3: expected UTF-8 text: re-encode the file");
}

/* ---- writing and setting --------------------------------------------------------------------- */

static int write_cluster(const void *context, FILE *file, struct ls_error *error)
{
    return ls_cluster_write(context, file, error);
}

static char *written(const struct ls_cluster *cluster)
{
    char *text = NULL;
    size_t bytes = 0;
    struct ls_error error = {0};
    assert_ok(ls_text_write(write_cluster, cluster, &text, &bytes, &error), error);
    return text;
}

static void assert_same(const struct ls_cluster *a, const struct ls_cluster *b)
{
    struct ls_cluster left = *a, right = *b;
    left.works = right.works = NULL;
    left.moves = right.moves = NULL;
    assert_memory_equal(&left, &right, sizeof left);
    for (int64_t i = 0; i < a->works_count; i++) {
        const struct ls_measured_work *x = &a->works[i], *y = &b->works[i];
        assert_true(x->kind == y->kind && x->dtype == y->dtype && x->threads == y->threads);
        assert_true(x->m == y->m && x->n == y->n && x->k == y->k && x->bytes == y->bytes);
        assert_true(x->seconds == y->seconds);
    }
    for (int64_t i = 0; i < a->moves_count; i++) {
        const struct ls_measured_move *x = &a->moves[i], *y = &b->moves[i];
        assert_true(x->kind == y->kind && x->ranks == y->ranks);
        assert_true(x->bytes == y->bytes && x->seconds == y->seconds);
    }
}

static void assert_reads_back(const struct ls_cluster *cluster)
{
    struct ls_cluster again;
    struct ls_error error;
    char *text = written(cluster);
    if (read_text(text, &again, &error))
        fail_msg("%s\n%s", error.text, text);
    assert_same(cluster, &again);
    ls_cluster_release(&again);
    free(text);
}

/* Rows that differ in bytes alone are rows each; the same bytes twice are an error. */
CASE(test_rows_with_other_bytes)
{
    static const char rows[] = "measured:\n"
                               "  works:\n"
                               "    - [product, fp32, 1, 10, 20, 30, 9600, 0.5]\n"
                               "    - [product, fp32, 1, 10, 20, 30, 0.25]\n"
                               "    - [product, fp32, 1, 10, 20, 30, 4800, 0.125]\n";
    static const struct {
        const char *row, *says;
    } wrong[] = {{"4800, 0.1", "the same is measured on line"},
                 {"0, 0.1", "expected rows [kind, type, threads, m, n, k, bytes, seconds]"},
                 {"x, 0.1", "expected rows [kind, type, threads, m, n, k, bytes, seconds]"},
                 {"4801, 1, 0.1", "expected rows [kind, type, threads, m, n, k, bytes, seconds]"},
                 {"4801, 1, 1, 0.1", "at most 9 plain values"}};
    char text[2048], more[2560];
    struct ls_cluster c;
    struct ls_error error;
    snprintf(text, sizeof text, "%.*s%s", (int)(strstr(good, "measured:") - good), good, rows);
    assert_ok(read_text(text, &c, &error), error);
    assert_int_equal(c.works_count, 3);
    assert_true(c.works[0].bytes == 0 && c.works[0].seconds == 0.25);
    assert_true(c.works[1].bytes == 4800 && c.works[1].seconds == 0.125);
    assert_true(c.works[2].bytes == 9600 && c.works[2].seconds == 0.5);
    assert_reads_back(&c);
    ls_cluster_release(&c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(more, sizeof more, "%s    - [product, fp32, 1, 10, 20, 30, %s]\n", text,
                 wrong[i].row);
        assert_int_equal(read_text(more, &c, &error), LS_ECONFIG);
        if (!strstr(error.text, wrong[i].says))
            fail_msg("%s: %s", wrong[i].row, error.text);
    }
}

CASE(test_every_shipped_file)
{
    glob_t files;
    struct ls_error error = {0};
    assert_int_equal(glob("clusters/*.yaml", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 9);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct ls_cluster cluster;
        assert_ok(ls_cluster_read(files.gl_pathv[i], &cluster, &error), error);
        assert_reads_back(&cluster);
        ls_cluster_release(&cluster);
    }
    globfree(&files);
}

CASE(test_drawn_figures_read_back)
{
    struct ls_cluster cluster = read_good();
    struct ls_philox_key key = ls_philox_key_of(3, "test_cluster");
    assert_reads_back(&cluster);
    double *figures[] = {&cluster.accelerator.peak[0],
                         &cluster.accelerator.memory_bytes,
                         &cluster.accelerator.bytes_per_s,
                         &cluster.link[0].latency_s,
                         &cluster.link[1].bytes_per_s,
                         &cluster.works[0].seconds,
                         &cluster.moves[0].seconds,
                         &cluster.failures_per_hour,
                         &cluster.host_power_w,
                         &cluster.accelerator.product_share};
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, word[4];
        ls_philox(key, counter, word);
        double *figure = figures[i % (sizeof figures / sizeof *figures)], kept = *figure;
        *figure = kept > 0 ? kept * (0.5 + ls_uniform_of(word[0])) : ls_uniform_of(word[0]);
        assert_reads_back(&cluster);
        *figure = kept;
    }
    snprintf(cluster.name, sizeof cluster.name, "%s",
             "a \"b\" \\c: #d, [e] {f} & *g ! | > ' % @ `");
    assert_reads_back(&cluster);
    memset(cluster.name, '"', sizeof cluster.name - 1);
    assert_reads_back(&cluster);
    ls_cluster_release(&cluster);
}

CASE(test_figures_are_set)
{
    static const struct {
        const char *path, *value;
        size_t at;
        double figure;
    } cases[] = {
#define FIGURE(field) offsetof(struct ls_cluster, field)
        {"accelerator.memory", "40 GB", FIGURE(accelerator.memory_bytes), 40e9},
        {"accelerator.peak.fp16", "1T", FIGURE(accelerator.peak[2]), 1e12},
        {"link.inter", "100Gbps", FIGURE(link[1].bytes_per_s), 12.5e9},
        {"link.inter.bandwidth", "1 GB/s", FIGURE(link[1].bytes_per_s), 1e9},
        {"link.far.bandwidth", "2 GB/s", FIGURE(link[1].bytes_per_s), 2e9},
        {"links.far.latency", "1 ms", FIGURE(link[1].latency_s), 1e-3},
        {"link.intra.latency", "7 ns", FIGURE(link[0].latency_s), 7e-9},
        {"link.near", "3 TB/s", FIGURE(link[0].bytes_per_s), 3e12},
        {"power.host", "1.5 kW", FIGURE(host_power_w), 1500},
        {"price", "2.5", FIGURE(price_per_hour), 2.5},
        {"restart", "1h", FIGURE(restart_s), 3600},
    };
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_cluster cluster = read_good();
        assert_ok(ls_cluster_set(&cluster, cases[i].path, cases[i].value, &error), error);
        double is = *(const double *)((const char *)&cluster + cases[i].at);
        if (is != cases[i].figure)
            fail_msg("%s = %s gives %.17g", cases[i].path, cases[i].value, is);
        ls_cluster_release(&cluster);
    }
    struct ls_cluster cluster = read_good();
    assert_int_equal(ls_cluster_set(&cluster, "hosts", "4", &error), LS_OK);
    assert_true(cluster.hosts == 4 && cluster.link[0].joins == 4 && cluster.link[1].joins == 16);
    assert_int_equal(ls_cluster_set(&cluster, "accelerators", "8", &error), LS_OK);
    assert_true(cluster.link[0].joins == 8 && cluster.link[1].joins == 32);
    assert_int_equal(ls_cluster_set(&cluster, "hosts", "1", &error), LS_OK);
    assert_true(cluster.links == 1 && cluster.link[0].joins == 8); /* nothing between hosts */
    assert_int_equal(ls_cluster_set(&cluster, "accelerator.tile", "32x64", &error), LS_OK);
    assert_true(cluster.accelerator.tile_m == 32 && cluster.accelerator.tile_n == 64);
    ls_cluster_release(&cluster);
}

CASE(test_wrong_figures_are_not_set)
{
    static const struct {
        const char *path, *value, *what;
    } cases[] = {
        {"accelerator.memroy", "1 GB",
         "unknown key accelerator.memroy; did you mean "
         "accelerator.memory?"},
        {"accelerator", "1", "accelerator is a group"},
        {"", "1", "unknown key"},
        {"link.middle.latency", "1 s",
         "link.middle.latency: no such link: expected link.NAME.KEY "
         "with inter, intra, near, far"},
        {"link.far.latencey", "1 s", "unknown key links.latencey; did you mean links.latency?"},
        {"link.far.joins", "9", "link.far.joins = 9: links.joins = 9 of far, the outermost"},
        {"link.near.joins", "16", "link.near.joins = 16: links.joins = 8 of far"},
        {"hosts", "0", "hosts = 0: expected a whole number from 1"},
        {"overlap", "", "overlap = (nothing): expected a number from 0 to 1"},
        {"accelerator.bandwidth", "fast", "accelerator.bandwidth = fast: expected a rate"},
        {"measured.works", "1", "unknown key measured.works"},
    };
    struct ls_cluster cluster = read_good(), before = cluster;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        assert_int_equal(ls_cluster_set(&cluster, cases[i].path, cases[i].value, &error),
                         LS_ECONFIG);
        if (!strstr(error.text, cases[i].what))
            fail_msg("%s, expected %s", error.text, cases[i].what);
        if (*cases[i].path && !strstr(cases[i].what, "no such link"))
            assert_non_null(strstr(error.text, *error.key ? error.key : "no key"));
        assert_memory_equal(&cluster, &before, sizeof cluster);
    }
    ls_cluster_release(&cluster);
}

/* "required", "0.75", "[128, 256]", "" if the help says it. */
static void fallback_text(const struct ls_config_key *key, char *text, size_t bytes)
{
    struct ls_cluster cluster;
    cluster_defaults(&cluster);
    cluster_link_defaults(&cluster.link[0]);
    if (!key->initial)
        snprintf(text, bytes, "required");
    else if (!*key->initial)
        snprintf(text, bytes, "as bf16");
    else
        ls_config_format(key, cluster_slot(&cluster, key, 0), text, bytes);
}

/* The table of all keys in Markdown, but those of measured. */
static void keys_write(FILE *file)
{
    char value[CLUSTER_VALUE_BYTES], fallback[CLUSTER_VALUE_BYTES];
    fprintf(file, "| key | value | default | what it is |\n|---|---|---|---|\n");
    for (const struct ls_config_key *key = cluster_keys(); key->name; key++) {
        ls_config_expected(key, value, sizeof value);
        fallback_text(key, fallback, sizeof fallback);
        fprintf(file, "| `%s` | %s | %s | %s |\n", key->name, value, fallback, key->help);
    }
}

/* doc/planning.md has the table of the keys as the library has them. */
CASE(test_the_page_has_the_keys)
{
    char *table = NULL, *page = NULL;
    size_t bytes = 0;
    struct ls_error error = {0};
    FILE *file = open_memstream(&table, &bytes);
    assert_non_null(file);
    keys_write(file);
    fclose(file);
    assert_ok(ls_file_read("doc/planning.md", 1 << 20, LS_ECONFIG, &page, &bytes, &error), error);
    if (!strstr(page, table))
        fail_msg("doc/planning.md: the table of a cluster's keys is not, or no longer:\n%s", table);
    free(table);
    free(page);
}

SUITE_MAIN(NULL, NULL)

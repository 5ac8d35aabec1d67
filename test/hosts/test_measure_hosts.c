/* lockstep bench machine over two hosts: what it says of the cable between them is what the cable
 * was made to carry, and a host that is slow is named. These are times: they are right where
 * nothing else runs, so with CHECK=all alone. `make check` asks what the file tells. */
/* check: network */
#include "../cmd/run_program.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "hosts.h"

#include <lockstep/ops.h>
#include <lockstep/planner/cluster.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 3 };
/* Of a shaped rate, what messages reach: a frame of 1514 bytes carries 1448 of theirs. Other
 * programs take time from both ends. */
static const double share_least = 0.75, share_most = 1.0;

static void cores_or_skip(void)
{
    if (hosts_core(0) != hosts_core(1))
        return;
    print_message("SKIPPED: two hosts need two cores\n");
    skip();
}

static void shape_or_skip(int mbit_per_s)
{
    if (hosts_shape(mbit_per_s))
        return;
    print_message("SKIPPED: a cable cannot be shaped here: no tc with tbf (Debian: iproute2)\n");
    skip();
}

/* Runs `lockstep <words>` with `each` processes on both hosts; the other one's have `set` in their
 * environment. Each host has its own core, or (`shared`) both have both. What it prints goes to
 * <out>.log. Returns its exit code. */
static int run(int each, bool shared, const char *out, const char *set, const char *words)
{
    char program[PATH_MAX], command[4 * PATH_MAX];
    const int core[HOSTS] = {hosts_core(0), hosts_core(1)};
    cores_or_skip();
    program_path(program, sizeof program);
    snprintf(command, sizeof command,
             "--bind-to none sh -c 'own=%d; other=%d; if test $OMPI_COMM_WORLD_RANK -ge %d; then "
             "own=%d; other=%d; export UNUSED= %s; fi; exec taskset -c $own%s \"$0\" \"$@\"' '%s' "
             "%s",
             core[0], core[1], each, core[1], core[0], set, shared ? ",$other" : "", program,
             words);
    return hosts_end(hosts_start(hosts_directory, each, out, command));
}

/* The file is to be released. */
static void measure(int each, const char *out, const char *set, struct ls_cluster *cluster)
{
    char words[256];
    struct ls_error error = {0};
    snprintf(words, sizeof words,
             "bench machine --bound --quick --out %s.yaml model.preset=gpt2-tiny model.vocab=256 "
             "model.layers=1",
             out);
    int code = run(each, false, out, set, words);
    if (code)
        fail_msg("exited with %d:\n%s", code, hosts_said(hosts_directory, out));
    char name[64];
    snprintf(name, sizeof name, "%s.yaml", out);
    assert_ok(ls_cluster_read(scratch_path(hosts_directory, name), cluster, &error), error);
    assert_int_equal(cluster->hosts, 2);
    assert_int_equal(cluster->accelerators, 1);
    assert_int_equal(cluster->links, 2);
    assert_int_equal(cluster->link[0].joins, 1);
    assert_int_equal(cluster->link[1].joins, 2);
    assert_true(cluster->works_count > 10 && cluster->moves_count > 10);
    char *file = scratch_read(scratch_path(hosts_directory, name), NULL);
    for (int i = 0; i < HOSTS; i++)
        if (!strstr(file, hosts_name[i]))
            fail_msg("%s does not tell of %s:\n%s", name, hosts_name[i], file);
    free(file);
}

CASE(test_both_hosts_are_measured)
{
    struct ls_cluster cluster;
    hosts_or_skip();
    shape_or_skip(200);
    measure(1, "both", "", &cluster);
    assert_true(cluster.link[1].latency_s > 0 && cluster.link[1].bytes_per_s > 0);
    ls_cluster_release(&cluster);
}

/* Other programs disturb the ends: of some measurements one has to be right. */
static void expect_rate(int mbit_per_s)
{
    double share = 0;
    shape_or_skip(mbit_per_s);
    for (int tries = 0; tries < TRIES; tries++) {
        struct ls_cluster cluster;
        measure(1, "rate", "", &cluster);
        const struct ls_cluster_link *inside = &cluster.link[0], *between = &cluster.link[1];
        share = between->bytes_per_s / (mbit_per_s * 1e6 / 8);
        assert_true(between->latency_s > 0 && between->latency_s < 1);
        assert_true(between->overlap >= 0 && between->overlap <= 1);
        assert_true(inside->bytes_per_s > 10 * between->bytes_per_s);
        ls_cluster_release(&cluster);
        print_message("a cable of %d Mbit/s: %.3f of that was measured\n", mbit_per_s, share);
        if (share >= share_least && share <= share_most)
            return;
    }
    fail_msg("a cable of %d Mbit/s: %.3f of that was measured, expected %.2f to %.2f", mbit_per_s,
             share, share_least, share_most);
}

CASE(test_the_cable_is_measured)
{
    hosts_or_skip();
    expect_rate(200);
    expect_rate(50);
}

/* Two processes a host: they meet in collectives there, and all of them over the cable. The other
 * host has to do without its vector instructions. */
CASE(test_a_slow_host_is_named)
{
    struct ls_cluster cluster;
    char words[64];
    hosts_or_skip();
    if (ls_isa_best() == LS_ISA_PLAIN) {
        print_message("SKIPPED: no instruction set here is slower than another\n");
        skip();
    }
    measure(2, "slow", "LOCKSTEP_ISA=plain", &cluster);
    ls_cluster_release(&cluster);
    char *said = hosts_said(hosts_directory, "slow");
    snprintf(words, sizeof words, "note: %s takes ", hosts_name[1]);
    if (!strstr(said, words) || strstr(strstr(said, words) + 1, "note: "))
        fail_msg("expected one note, of %s:\n%s", hosts_name[1], said);
    snprintf(words, sizeof words, "%s ", hosts_name[0]);
    if (!strstr(said, words) || !strstr(said, "2 processes"))
        fail_msg("expected both hosts with 2 processes each:\n%s", said);
    free(said);
}

/* --run MBIT EACH WORDS...: `lockstep WORDS` on EACH ranks of both hosts, over a cable of MBIT
 * Mbit/s (bench/layouts.py). Where EACH is 1 hosts have a core each. */
static int main_run(int argc, char **argv)
{
    char words[2 * PATH_MAX] = "";
    void *state = NULL;
    size_t used = 0;
    int code = 1;
    for (int i = 4; i < argc && used < sizeof words; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s ", argv[i]);
    if (used >= sizeof words || hosts_setup(&state))
        return code;
    hosts_or_skip();
    shape_or_skip(atoi(argv[2]));
    int each = atoi(argv[3]);
    code = run(each, each > 1, "run", "", words);
    char *said = hosts_said(hosts_directory, "run");
    fputs(said, stdout);
    free(said);
    hosts_teardown(&state);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "--run") == 0)
        return main_run(argc, argv);
    if (!check_all()) { /* seconds of both hosts; planner/test_measure measures one */
        print_message("figures of hosts are measured with CHECK=all\n");
        return 0;
    }
    return suite_run(hosts_setup, hosts_teardown);
}

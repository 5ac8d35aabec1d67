/* Tables: every generator on awkward sizes, what the validator must catch, figures beside the
 * papers' formulas, slots, and the cut of layers into stages. */
#include <lockstep/parallel/pipeline.h>
#include <lockstep/parallel/stage_times.h>
#include <lockstep/planner/closed_forms.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"
#include "../support/xml.h"

static void generate(struct ls_schedule *schedule, enum ls_schedule_kind kind, int p, int v,
                     int64_t m)
{
    struct ls_error error = {0};
    if (ls_schedule_generate(schedule, kind, p, v, m, &error) ||
        ls_schedule_validate(schedule, &error))
        fail_msg("%s, %d ranks, %d chunks, %ld micro-batches: %s", ls_schedule_name(kind), p, v,
                 (long)m, error.text);
}

static struct ls_schedule_figures simulate(const struct ls_schedule *schedule, double f, double i,
                                           double w)
{
    struct ls_schedule_figures figures;
    struct ls_error error = {0};
    struct ls_schedule_costs costs = {.all = {f, i, w}};
    assert_ok(ls_schedule_simulate(schedule, &costs, &figures, &error), error);
    return figures;
}

/* ---- generators ------------------------------------------------------------------------------ */

CASE(test_every_generator)
{
    int tables = 0;
    for (int kind = 0; kind < LS_SCHEDULE_KINDS; kind++)
        for (int p = 1; p <= 12; p++)
            for (int v = 1; v <= 4; v++)
                for (int64_t m = 1; m <= 26; m++) {
                    struct ls_schedule schedule;
                    struct ls_error error = {0};
                    int code = ls_schedule_generate(&schedule, (enum ls_schedule_kind)kind, p, v, m,
                                                    &error);
                    if (code) {
                        assert_int_equal(code, LS_ELAYOUT);
                        continue;
                    }
                    ls_schedule_release(&schedule);
                    generate(&schedule, (enum ls_schedule_kind)kind, p, v, m);
                    tables++;
                    ls_schedule_release(&schedule);
                }
    assert_true(tables > 2000);
}

static void assert_row(const struct ls_schedule *schedule, int rank, const char *expected)
{
    char text[1024] = "";
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, ls_action_text(actions[i]).text);
    }
    assert_string_equal(text, expected);
}

/* Rows as the papers' figures show them. */
CASE(test_known_tables)
{
    struct ls_schedule schedule;
    generate(&schedule, LS_SCHEDULE_1F1B, 4, 1, 5);
    assert_row(&schedule, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4");
    assert_row(&schedule, 3, "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4");
    ls_schedule_release(&schedule);
    generate(&schedule, LS_SCHEDULE_INTERLEAVED, 2, 2, 4);
    assert_row(&schedule, 0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
    ls_schedule_release(&schedule);
    generate(&schedule, LS_SCHEDULE_ZB_H1, 3, 1, 4);
    assert_row(&schedule, 0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
    assert_row(&schedule, 2, "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
    ls_schedule_release(&schedule);
    /* These two equal what PyTorch's ScheduleZBVZeroBubble and ScheduleDualPipeV compute. */
    generate(&schedule, LS_SCHEDULE_ZBV, 2, 2, 3);
    assert_row(&schedule, 0,
               "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 "
               "0W2");
    assert_row(&schedule, 1,
               "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 "
               "1W2");
    ls_schedule_release(&schedule);
    generate(&schedule, LS_SCHEDULE_DUALPIPEV, 2, 2, 4);
    assert_row(&schedule, 0,
               "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 "
               "0I3 0W3");
    assert_row(&schedule, 1,
               "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 "
               "1W3");
    ls_schedule_release(&schedule);
    for (int kind = 0; kind < LS_SCHEDULE_ZBV; kind++) {
        generate(&schedule, (enum ls_schedule_kind)kind, 1, 1, 2);
        assert_row(&schedule, 0, "0F0 0B0 0F1 0B1");
        ls_schedule_release(&schedule);
    }
}

static void assert_refused(enum ls_schedule_kind kind, int p, int v, int64_t m, const char *text)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    assert_int_equal(ls_schedule_generate(&schedule, kind, p, v, m, &error), LS_ELAYOUT);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" lacks \"%s\"", error.text, text);
}

CASE(test_what_is_refused)
{
    assert_refused(LS_SCHEDULE_1F1B, 4, 2, 8, "interleaved takes any number");
    assert_refused(LS_SCHEDULE_ZBV, 4, 1, 8, "2 chunks on each rank");
    assert_refused(LS_SCHEDULE_DUALPIPEV, 4, 2, 7, "at least 8 micro-batches");
    assert_refused(LS_SCHEDULE_GPIPE, 4, 1, 0, "micro-batches");
}

/* ---- the validator --------------------------------------------------------------------------- */

static void assert_text(const char *csv, int code, const char *text)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    int got = ls_schedule_parse(&schedule, "s.csv", csv, strlen(csv), 0, 0, 0, &error);
    if (got == LS_OK) {
        got = ls_schedule_validate(&schedule, &error);
        ls_schedule_release(&schedule);
    }
    if (got != code || (text && !strstr(error.text, text)))
        fail_msg("%s: %s, \"%s\"; expected %s, \"%s\"", csv, ls_status_name(got), error.text,
                 ls_status_name(code), text ? text : "");
}

CASE(test_what_the_validator_finds)
{
    assert_text("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", LS_OK, NULL);
    assert_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT, "too few");
    assert_text("0F0,0F1,0I0,0W0,0I1\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT,
                "0W1 is missing on rank 0, line 1");
    assert_text("0F0,0F1,0I0,0W0,0W1\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT,
                "0I1 (or 0B1) is missing on rank 0, line 1");
    assert_text("0F0,0F1,0B0,0B1\n1F0,1B0,,1B0,1B1,1F1\n", LS_ELAYOUT,
                "1B0 (rank 1, line 2, cell 4) repeats 1B0 (rank 1, line 2, cell 2)");
    assert_text("0F0,0F1,0B0,0B1\n1F0,1I0,1B0,1F1,1B1\n", LS_ELAYOUT, "repeats 1I0");
    assert_text("0F1,0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT,
                "0F1 (rank 0, line 1, cell 1) comes before 0F0 (rank 0, line 1, cell 2)");
    assert_text("0F0,0F1,0I0,0I1,0W1,0W0\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT, "sum of gradients");
    assert_text("0B0,0F0,0F1,0B1\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT, "comes before 0F0");
    assert_text("0F0,0F1,0W0,0I0,0B1\n1F0,1B0,1F1,1B1\n", LS_ELAYOUT, "comes before 0I0");
    /* A circle over two ranks, and one on a single rank. */
    assert_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", LS_ELAYOUT,
                "0B0 on rank 0 waits for 1B0 on rank 1; 1F1 on rank 1 waits for 0F1 on rank 0");
    assert_text("1F0,0F0,1B0,0B0\n", LS_ELAYOUT, "1F0 on rank 0 waits for 0F0 on rank 0");
}

/* Rank 1 makes the gradients of stage 3 for all micro-batches before those of stage 1; rank 0 wants
 * stage 1's first one before stage 3's second. With buffers for all this would end; with the
 * runtime's it does not. */
CASE(test_bounded_buffers_count)
{
    char text[4096], *row0 = text;
    int n = 12, used = 0;
    for (int m = 0; m < n; m++)
        used += sprintf(row0 + used, "0F%d,", m);
    for (int m = 0; m < n; m++)
        used += sprintf(row0 + used, "2F%d,", m);
    used += sprintf(text + used, "2B0,0B0");
    for (int m = 1; m < n; m++)
        used += sprintf(text + used, ",2B%d,0B%d", m, m);
    used += sprintf(text + used, "\n");
    for (int m = 0; m < n; m++)
        used += sprintf(text + used, "1F%d,", m);
    for (int m = 0; m < n; m++)
        used += sprintf(text + used, "3F%d,", m);
    for (int m = 0; m < n; m++)
        used += sprintf(text + used, "3B%d,", m);
    for (int m = 0; m < n; m++)
        used += sprintf(text + used, "1B%d%s", m, m == n - 1 ? "\n" : ",");
    assert_text(text, LS_ELAYOUT, "waits for the receive of");
}

/* ---- files ----------------------------------------------------------------------------------- */

CASE(test_reading)
{
    assert_text("0F0,0FF,\n", LS_EDATA, "s.csv: line 1, cell 2: \"0FF\" is not an action");
    assert_text("0F0,F1\n", LS_EDATA, "cell 2");
    assert_text("0F0,0F\n", LS_EDATA, "cell 2");
    assert_text("0F0,0B0x\n", LS_EDATA, "cell 2");
    assert_text("0F99999999999999999999\n", LS_EDATA, "cell 1");
    assert_text("0F1048576\n", LS_EDATA, "of stages 0 to 262143 and micro-batches 0 to 1048575");
    assert_text("0F0,(0F1;0B0\n", LS_EDATA, "cell 2");
    assert_text("0F0,(0F1;0B0)OVERLAP\n", LS_EDATA, "cell 2");
    assert_text("", LS_EDATA, "no line with an action");
    assert_text("\n,,\n", LS_EDATA, "no line with an action");
    assert_text("0F0,0B0\n0F1,1B1\n", LS_ELAYOUT,
                "line 2, cell 1: 0F1, but stage 0 is computed in line 1");
    assert_text("0F0,2F0,0B0,2B0\n", LS_ELAYOUT, "no line computes stage 1 of 0 to 2");
    assert_text("0F0,1F0,2F0\n3F0\n", LS_ELAYOUT, "each line must have 2, and one has more");
    assert_text("0F0,1F0\n2F0\n", LS_ELAYOUT, "cannot be shared evenly by 2 ranks");
    assert_text("0F0,65F0\n", LS_ELAYOUT, "more than 64 chunks a rank");
    assert_text("0F1000000\n", LS_ELAYOUT, "too few");
    /* Windows' line ends, quotes, blanks, overlaps and the cells of lowered files. */
    assert_text(" 0F0 ,\"0SEND_F0\",(0F1;0B0)OVERLAP_F_B, 0RESHARD,0REDUCE_GRAD,0B1\r\n"
                "1UNSHARD,1RECV_F0,1F0,1WAIT_SEND_B0,1B0,,1F1,1B1\r\n\r\n",
                LS_OK, NULL);
    assert_text("\xef\xbb\xbf\"0F0\",\"0B0\"\r\n", LS_OK, NULL); /* a spreadsheet's */
}

CASE(test_another_layouts_file)
{
    static const char csv[] = "0F0,0B0\n1F0,1B0\n";
    static const struct {
        int p, v, m, code;
    } cases[] = {{0, 0, 0, LS_OK},
                 {2, 1, 1, LS_OK},
                 {3, 0, 0, LS_ELAYOUT},
                 {2, 2, 0, LS_ELAYOUT},
                 {2, 1, 2, LS_ELAYOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_schedule schedule;
        struct ls_error error = {0};
        int code = ls_schedule_parse(&schedule, "s.csv", csv, sizeof csv - 1, cases[i].p,
                                     cases[i].v, cases[i].m, &error);
        if (code != cases[i].code)
            fail_msg("case %zu: %d, expected %d", i, code, cases[i].code);
        ls_schedule_release(&schedule);
    }
    struct ls_schedule schedule;
    struct ls_error error = {0};
    assert_int_equal(ls_schedule_read(&schedule, "/no/such.csv", 0, 0, 0, &error), LS_EIO);
    assert_non_null(strstr(error.text, "/no/such.csv"));
}

/* What is written is read as the same table, whatever the generator. */
CASE(test_writing)
{
    for (int kind = 0; kind < LS_SCHEDULE_KINDS; kind++) {
        struct ls_schedule schedule, copy;
        struct ls_error error = {0};
        int v = kind >= LS_SCHEDULE_ZBV || kind == LS_SCHEDULE_INTERLEAVED ? 2 : 1;
        generate(&schedule, (enum ls_schedule_kind)kind, 3, v, 7);
        char *text;
        size_t bytes;
        FILE *file = open_memstream(&text, &bytes);
        assert_int_equal(ls_schedule_write(&schedule, file, &error), LS_OK);
        fclose(file);
        assert_ok(ls_schedule_parse(&copy, "copy", text, bytes, 3, v, 7, &error), error);
        assert_int_equal(copy.placement, schedule.placement);
        assert_int_equal(copy.first[3], schedule.first[3]);
        assert_memory_equal(copy.actions, schedule.actions,
                            (size_t)copy.first[3] * sizeof *copy.actions);
        free(text);
        ls_schedule_release(&copy);
        ls_schedule_release(&schedule);
    }
}

/* ---- figures --------------------------------------------------------------------------------- */

static void assert_near(double value, double expected, const char *what)
{
    if (!(fabs(value - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}

CASE(test_bubbles_are_the_papers)
{
    static const enum ls_schedule_kind kinds[] = {LS_SCHEDULE_GPIPE, LS_SCHEDULE_1F1B,
                                                  LS_SCHEDULE_INTERLEAVED, LS_SCHEDULE_ZB_H1};
    const double f = 1, i = 1.25, w = 0.75;
    for (int p = 2; p <= 8; p++)
        for (int64_t m = p; m <= 4 * p; m += p)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
                for (int v = 1; v <= (kinds[k] == LS_SCHEDULE_INTERLEAVED ? 4 : 1); v++) {
                    struct ls_schedule schedule;
                    struct ls_pass_times times = {f * v, i * v, w * v};
                    generate(&schedule, kinds[k], p, v, m);
                    struct ls_schedule_figures figures = simulate(&schedule, f, i, w);
                    assert_near(figures.makespan, ls_pipeline_seconds(kinds[k], p, v, m, times),
                                ls_schedule_name(kinds[k]));
                    assert_near(figures.bubble, ls_bubble_share(kinds[k], p, v, m, times),
                                ls_schedule_name(kinds[k]));
                    ls_schedule_figures_release(&figures);
                    ls_schedule_release(&schedule);
                }
}

/* ZBV: with F = I = W no rank idles between its first and its last action. DualPipeV: at most what
 * its authors give, (p - 1) (F&B + B - 3 W) with F&B = F + B. */
CASE(test_bubbles_of_the_v)
{
    for (int p = 2; p <= 8; p++) {
        for (int64_t m = 2 * p; m <= 4 * p; m += 3) {
            struct ls_schedule schedule;
            generate(&schedule, LS_SCHEDULE_ZBV, p, 2, m);
            struct ls_schedule_figures figures = simulate(&schedule, 1, 1, 1);
            assert_near(figures.bubble_rank, 0, "zbv");
            for (int r = 0; r < p; r++)
                assert_true(figures.rank[r].live_max <= 2 * p);
            ls_schedule_figures_release(&figures);
            ls_schedule_release(&schedule);
            generate(&schedule, LS_SCHEDULE_DUALPIPEV, p, 2, m);
            figures = simulate(&schedule, 1, 1, 1);
            assert_near(figures.makespan, 6.0 * (double)m + (p - 1), "dualpipev");
            for (int r = 0; r < p; r++)
                assert_true(figures.rank[r].live_max <= 2 * p + 1);
            ls_schedule_figures_release(&figures);
            ls_schedule_release(&schedule);
        }
    }
}

CASE(test_live_activations)
{
    int p = 5;
    int64_t m = 12;
    struct ls_schedule schedule;
    for (int kind = LS_SCHEDULE_GPIPE; kind <= LS_SCHEDULE_ZB_H1; kind++) {
        if (kind == LS_SCHEDULE_INTERLEAVED)
            continue;
        generate(&schedule, (enum ls_schedule_kind)kind, p, 1, m);
        struct ls_schedule_figures figures = simulate(&schedule, 1, 1, 1);
        for (int r = 0; r < p; r++) {
            int live = kind == LS_SCHEDULE_GPIPE ? (int)m : kind == LS_SCHEDULE_1F1B ? p - r : p;
            assert_int_equal(figures.rank[r].live_max, live);
            assert_int_equal(figures.stage_live_max[r], live);
            assert_int_equal(figures.rank[r].weight_max, kind == LS_SCHEDULE_ZB_H1 ? r + 1 : 0);
            int32_t slot[12];
            assert_int_equal(ls_schedule_slots(&schedule, r, 0, LS_SLOT_SAVED, slot), live);
        }
        ls_schedule_figures_release(&figures);
        ls_schedule_release(&schedule);
    }
}

/* Stages of unequal cost, and sends that take time, against a table small enough to count. */
CASE(test_costs)
{
    struct ls_schedule schedule;
    struct ls_schedule_figures figures;
    struct ls_error error = {0};
    const struct ls_stage_cost stage[2] = {{1, 2, 3}, {10, 20, 30}};
    struct ls_schedule_costs costs = {.stage = stage, .send = 0.5};
    double start[4];
    generate(&schedule, LS_SCHEDULE_1F1B, 2, 1, 1);
    assert_int_equal(ls_schedule_simulate(&schedule, &costs, &figures, &error), LS_OK);
    assert_near(figures.makespan, 1 + 0.5 + 60 + 0.5 + 5, "makespan");
    assert_near(figures.bubble, 1 - 66 / (2 * 67.0), "bubble");
    assert_int_equal(ls_schedule_times(&schedule, &costs, start, &error), LS_OK);
    const double expected[4] = {0, 62, 1.5, 11.5};
    for (int i = 0; i < 4; i++)
        assert_near(start[i], expected[i], "start");
    ls_schedule_figures_release(&figures);
    ls_schedule_release(&schedule);
}

/* Send buffers are bounded: what is admitted still ends where there are more ranks than buffers. */
CASE(test_more_ranks_than_send_buffers)
{
    static const int ranks[] = {32, 34, 48, 64, 96, 97, 98, 130};
    static const int64_t times[] = {1, 2, 3};
    int admitted = 0, refused = 0;
    for (int kind = 0; kind < LS_SCHEDULE_KINDS; kind++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
            for (size_t t = 0; t < sizeof times / sizeof *times; t++)
                for (int v = 1; v <= 4; v++) {
                    struct ls_schedule schedule;
                    int64_t m = times[t] * ranks[i];
                    if (ls_schedule_admits((enum ls_schedule_kind)kind, ranks[i], v, m, NULL)) {
                        refused++;
                        continue;
                    }
                    generate(&schedule, (enum ls_schedule_kind)kind, ranks[i], v, m);
                    ls_schedule_release(&schedule);
                    admitted++;
                }
    assert_true(admitted > 150 && refused > 0);
    assert_int_equal(ls_schedule_admits(LS_SCHEDULE_ZBV, 98, 2, 97, NULL), LS_ELAYOUT);
    assert_int_equal(ls_schedule_admits(LS_SCHEDULE_ZBV, 98, 2, 96, NULL), LS_OK);
}

/* A plan for 16,384 pipeline ranks is checked: by a search that is not linear it would not end. */
CASE(test_many_ranks)
{
    for (int v = 1; v <= 2; v++) {
        struct ls_schedule schedule;
        generate(&schedule, v == 1 ? LS_SCHEDULE_ZB_H1 : LS_SCHEDULE_ZBV, 16384, v, 32);
        struct ls_schedule_figures figures = simulate(&schedule, 1, 1, 1);
        assert_true(figures.makespan >= 32.0 * 3 * v);
        ls_schedule_figures_release(&figures);
        ls_schedule_release(&schedule);
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Where an action of a stage stands, -1: nowhere. */
static int64_t find(const struct ls_schedule *schedule, int rank, int stage, int64_t m,
                    const char *kinds)
{
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, rank, &count);
    for (int64_t i = 0; i < count; i++)
        if (actions[i].stage == stage && actions[i].micro_batch == m &&
            strchr(kinds, "FIWB"[actions[i].kind]))
            return i;
    return -1;
}

static void check_slots(const struct ls_schedule *schedule, int rank, int chunk,
                        enum ls_slot_kind kind)
{
    int32_t slot[64];
    int stage = ls_schedule_stage(schedule, rank, chunk);
    int slots = ls_schedule_slots(schedule, rank, chunk, kind, slot), used = 0;
    const char *begins = kind == LS_SLOT_SAVED || kind == LS_SLOT_INPUT ? "F" : "IB";
    int64_t ahead = kind == LS_SLOT_INPUT || kind == LS_SLOT_GRADIENT;
    if (slots == 0)
        return;
    for (int64_t a = 0; a < schedule->micro_batches; a++) {
        assert_true(slot[a] >= 0 && slot[a] < slots);
        used = slot[a] >= used ? slot[a] + 1 : used;
        for (int64_t b = a + 1; b < schedule->micro_batches; b++) {
            int64_t end = find(schedule, rank, stage, a, "WB");
            int64_t begin = find(schedule, rank, stage, b, begins) - ahead;
            if (slot[a] == slot[b] && begin <= end)
                fail_msg("rank %d, chunk %d, kind %d: %ld and %ld share slot %d", rank, chunk, kind,
                         (long)a, (long)b, slot[a]);
        }
    }
    assert_int_equal(used, slots);
}

/* Every slot before the one that was taken has a user who is not done. */
static void check_first_free(const struct ls_schedule *schedule, int rank, int chunk,
                             enum ls_slot_kind kind)
{
    int32_t slot[64], stage = ls_schedule_stage(schedule, rank, chunk);
    ls_schedule_slots(schedule, rank, chunk, kind, slot);
    for (int64_t m = 0; m < schedule->micro_batches; m++) {
        int64_t begin = find(schedule, rank, stage, m, kind == LS_SLOT_SAVED ? "F" : "IB"),
                busy = 0;
        for (int64_t before = 0; before < m; before++)
            busy += slot[before] < slot[m] && find(schedule, rank, stage, before, "WB") >= begin;
        assert_int_equal(busy, slot[m]);
    }
}

CASE(test_slots)
{
    for (int kind = 0; kind < LS_SCHEDULE_KINDS; kind++) {
        struct ls_schedule schedule;
        int v = kind >= LS_SCHEDULE_ZBV || kind == LS_SCHEDULE_INTERLEAVED ? 2 : 1;
        generate(&schedule, (enum ls_schedule_kind)kind, 4, v, 13);
        for (int rank = 0; rank < 4; rank++)
            for (int chunk = 0; chunk < v; chunk++)
                for (int slot = LS_SLOT_SAVED; slot <= LS_SLOT_GRADIENT; slot++) {
                    check_slots(&schedule, rank, chunk, (enum ls_slot_kind)slot);
                    if (slot <= LS_SLOT_WEIGHT)
                        check_first_free(&schedule, rank, chunk, (enum ls_slot_kind)slot);
                }
        ls_schedule_release(&schedule);
    }
}

/* ---- drawing --------------------------------------------------------------------------------- */

CASE(test_drawing)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    struct ls_schedule_costs costs = {.all = {1, 1, 1}};
    char *text;
    size_t bytes;
    generate(&schedule, LS_SCHEDULE_1F1B, 2, 1, 2);
    FILE *file = open_memstream(&text, &bytes);
    assert_int_equal(ls_schedule_print(&schedule, &costs, 0, 0, file, &error), LS_OK);
    fclose(file);
    assert_string_equal(text, "slots 0 to 8\n"
                              "     0 | 0F0 0F1         0B0 ---     0B1 ---\n"
                              "     1 |     1F0 1B0 --- 1F1 1B1 ---\n");
    free(text);
    ls_schedule_release(&schedule);
}

/* The picture of a schedule, for the caller to free. */
static char *picture_of(const struct ls_schedule *schedule, const struct ls_schedule_costs *costs,
                        int ranks_max)
{
    struct ls_error error = {0};
    char *text;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    const struct ls_schedule_picture picture = {"a < b & c", "time (1: any)", ranks_max, 0};
    assert_ok(ls_schedule_draw(schedule, costs, &picture, file, &error), error);
    fclose(file);
    assert_xml(text);
    return text;
}

/* Where an action begins and ends. */
static void assert_action(const char *svg, const char *action, double unit, double begin,
                          double end)
{
    char tip[64];
    snprintf(tip, sizeof tip, "<title>%s</title>", action);
    const char *at = strstr(svg, tip);
    assert_non_null(at);
    while (strncmp(at, "<rect", 5) != 0)
        at--;
    double x = strtod(strstr(at, " x=\"") + 4, NULL);
    double width = strtod(strstr(at, " width=\"") + 8, NULL) + 0.6;
    if (fabs(x - (66 + begin * unit)) > 0.2 || fabs(width - (end - begin) * unit) > 0.2)
        fail_msg("%s is drawn from %g, %g wide; expected from %g, %g wide", action, x, width,
                 66 + begin * unit, (end - begin) * unit);
}

CASE(test_picture)
{
    struct ls_schedule schedule;
    const struct ls_stage_cost stages[2] = {{1, 1, 1}, {2, 2, 3}};
    const struct ls_schedule_costs costs = {.stage = stages};
    generate(&schedule, LS_SCHEDULE_1F1B, 2, 1, 1);
    char *svg = picture_of(&schedule, &costs, 0);
    assert_non_null(strstr(svg, "a &lt; b &amp; c: 2 ranks, 1 micro-batch<"));
    /* 0F0 1, 1F0 2, 1B0 5, 0B0 2: 10 in all, of which 10 of 20 are worked. */
    assert_non_null(strstr(svg, "Bubble: 50.0% of the time (50.0% if all stages were equal)"));
    double unit = (1000 - 66 - 18) / 10.0;
    assert_action(svg, "0F0", unit, 0, 1);
    assert_action(svg, "1F0", unit, 1, 3);
    assert_action(svg, "1B0", unit, 3, 8);
    assert_action(svg, "0B0", unit, 8, 10);
    assert_non_null(strstr(svg, "time (1: any)"));
    assert_non_null(strstr(svg, ">10</text>")); /* the axis */
    assert_non_null(strstr(svg, "F forward<"));
    assert_non_null(strstr(svg, "B backward<"));
    assert_null(strstr(svg, "W backward"));
    assert_null(strstr(svg, "chunk"));
    free(svg);
    ls_schedule_release(&schedule);

    generate(&schedule, LS_SCHEDULE_ZBV, 4, 2, 8);
    svg = picture_of(&schedule, &(struct ls_schedule_costs){.all = {1, 1, 1}}, 2);
    assert_non_null(strstr(svg, "4 ranks, 8 micro-batches, 2 chunks a rank"));
    assert_null(strstr(svg, "alike"));
    assert_non_null(strstr(svg, "W backward, weights, chunk 1"));
    assert_null(strstr(svg, "B backward"));
    assert_non_null(strstr(svg, ">rank 3<"));
    assert_null(strstr(svg, ">rank 1<"));
    free(svg);
    ls_schedule_release(&schedule);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void assert_split(const double *cost, int64_t layers, int64_t stages,
                         const int64_t *expected)
{
    int64_t first[16];
    struct ls_error error = {0};
    assert_ok(ls_stage_split(cost, layers, stages, first, &error), error);
    for (int64_t s = 0; s <= stages; s++)
        if (first[s] != expected[s])
            fail_msg("stage %ld begins at %ld, expected %ld", (long)s, (long)first[s],
                     (long)expected[s]);
}

CASE(test_split)
{
    const double even[13] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_split(even, 12, 4, (const int64_t[]){0, 3, 6, 9, 12});
    assert_split(even, 13, 4, (const int64_t[]){0, 3, 6, 9, 13});
    assert_split(even, 5, 5, (const int64_t[]){0, 1, 2, 3, 4, 5});
    assert_split(even, 7, 1, (const int64_t[]){0, 7});
    /* An embedding that costs little and a head that costs as much as three blocks. */
    const double model[10] = {0.1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    assert_split(model, 10, 4, (const int64_t[]){0, 3, 6, 9, 10});
    const double free_layers[4] = {0, 0, 0, 0};
    int64_t first[8];
    struct ls_error error = {0};
    assert_int_equal(ls_stage_split(free_layers, 4, 3, first, &error), LS_OK);
    for (int s = 0; s < 3; s++)
        assert_true(first[s] < first[s + 1]);
    assert_int_equal(ls_stage_split(even, 3, 4, first, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "the nearest that works is 3 stages"));
}

/* The least maximum over all cuts, by trying them; a layer takes times[s] as long in stage s. */
static double best_maximum(const double *cost, int layers, const double *times, int stages,
                           int begin)
{
    double sum = 0, best = INFINITY;
    for (int end = begin + 1; end <= layers - (stages - 1); end++) {
        sum += cost[end - 1];
        if (stages == 1 && end < layers)
            continue;
        double rest = stages == 1 ? 0 : best_maximum(cost, layers, times + 1, stages - 1, end);
        best = fmin(best, fmax(sum * times[0], rest));
    }
    return best;
}

CASE(test_split_is_the_best)
{
    for (uint32_t trial = 0; trial < 300; trial++) {
        uint32_t draw[4];
        ls_philox(ls_philox_key_of(3, "split"), (uint32_t[4]){trial}, draw);
        int layers = 1 + (int)(draw[0] % 10), stages = 1 + (int)(draw[1] % (uint32_t)layers);
        double cost[10], times[10], most = 0;
        for (int i = 0; i < layers; i++) {
            uint32_t out[4];
            ls_philox(ls_philox_key_of(4, "split"), (uint32_t[4]){trial, (uint32_t)i}, out);
            cost[i] = (double)(out[0] % 16);
            times[i] = trial % 2 ? (double)(1 + out[1] % 4) : 1;
        }
        int64_t first[16];
        struct ls_error error = {0};
        int status = trial % 2 ? ls_stage_split_timed(cost, layers, times, stages, first, &error)
                               : ls_stage_split(cost, layers, stages, first, &error);
        assert_int_equal(status, LS_OK);
        assert_int_equal(first[0], 0);
        assert_int_equal(first[stages], layers);
        for (int s = 0; s < stages; s++) {
            double sum = 0;
            assert_true(first[s] < first[s + 1]);
            for (int64_t i = first[s]; i < first[s + 1]; i++)
                sum += cost[i];
            most = fmax(most, sum * times[s]);
        }
        double best = best_maximum(cost, layers, times, stages, 0);
        if (most != best)
            fail_msg("%d layers, %d stages: costliest stage %g, best %g", layers, stages, most,
                     best);
    }
}

CASE(test_split_by_hand)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"0-5,6-11,12", NULL},
        {" 0 - 5 , 6-11,12-12", NULL},
        {"0-5,7-11,12", "begins at layer 7, expected 6"},
        {"0-5,5-11,12", "begins at layer 5, expected 6"},
        {"0-5,6-11", "fewer than 3 parts"},
        {"0-5,6-10,11,12", "more than 3 parts"},
        {"0-5,6-10,11", "ends at layer 11, and the last is 12"},
        {"0-5,6-11,13", "part 3, \"13\""},
        {"0-5,11-6,12", "part 2"},
        {"0-5,,12", "part 2"},
        {"", "part 1"},
        {"0-5,6-11,12x", "part 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t first[4];
        struct ls_error error = {0};
        int code = ls_stage_split_parse(cases[i].text, 13, 3, first, &error);
        if (code != (cases[i].error ? LS_ELAYOUT : LS_OK) ||
            (cases[i].error && !strstr(error.text, cases[i].error)))
            fail_msg("\"%s\": %d, \"%s\"", cases[i].text, code, error.text);
        if (code == LS_OK) {
            assert_int_equal(first[1], 6);
            assert_int_equal(first[2], 12);
            assert_int_equal(first[3], 13);
        }
    }
}

SUITE_MAIN(NULL, NULL)

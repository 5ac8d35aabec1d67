/* data.blend: runs on sources mixed by weight have one hash in every layout, go on when only later
 * weights change, and take the samples that the definition says. */
#include "runs.h"

#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAVES "train.save_every=4 log.hash_every=1 "
/* 0.7 and 0.3, books once, and other weights from step 6 on. */
static const char blend[] = "data:\n"
                            "  blend:\n"
                            "    - {source: corpus_train, weight: 0.7}\n"
                            "    - {source: \"books,u16:more.bin\", weight: 0.3, epochs: 0.5}\n"
                            "    - {source: corpus_train, weight: 0.2, from_step: 6}\n"
                            "    - {source: u16:late.bin, weight: 0.5, from_step: 6}\n";
#define KEYS "B=\"$C data.train= \"; "

static int setup(void **state)
{
    uint16_t ids[33 * 32];
    int failed = corpus_setup(state);
    for (int i = 0; i < 33 * 32; i++)
        ids[i] = (uint16_t)(i * 7 % 250);
    scratch_write(at("more.bin"), ids, sizeof ids);
    for (int i = 0; i < 33 * 32; i++)
        ids[i] = (uint16_t)(i * 11 % 240);
    scratch_write(at("late.bin"), ids, sizeof ids);
    scratch_write(at("blend.yaml"), blend, strlen(blend));
    if (!failed)
        failed = shell("head -c 3000 book.txt > books.txt && $L data prepare --input books.txt "
                       "--output books_all --tokenizer byte --validation 0 && for e in bin idx; do "
                       "mv books_all_train.$e books.$e; done && cp books_all.tokenizer "
                       "books.tokenizer");
    if (failed)
        print_error("%s\n", output);
    return failed;
}

/* What a run's records say of its samples, bit by bit. */
#define SAMPLES                                                                                    \
    "records() { grep loss_bits $1/metrics.jsonl | sed 's/, \"time\"[^,]*//; "                     \
    "s/, \"\\(lr\\|step_s\\|tokens_per_s\\|peak_share\\|[a-z_]*wait[a-z_]*\\|compute_s\\|"         \
    "optimizer_s\\|snapshot_s\\|offload_[a-z_]*\\)\": [^,}]*//g'; }; "

CASE(test_one_hash_in_every_layout)
{
    static const char *const layouts[] = {"parallel.dp=2", "parallel.pp=2", "parallel.tp=2",
                                          "parallel.dp=2 parallel.zero=3 batch.micro=1"};
    expect(KEYS "$L train blend.yaml $B train.out=one train.steps=12 " SAVES, 0, "hash");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char line[2048];
        snprintf(line, sizeof line,
                 KEYS "rm -rf two; $L train blend.yaml $B train.out=two train.steps=12 %s " SAVES
                      ">log || cat log; " SAMPLES
                      "records one >a; records two >b; grep -c ledger a && cmp a b",
                 layouts[i]);
        expect(line, 0, "12\n");
    }
    expect("grep -c loss/late.bin one/metrics.jsonl", 0, "6\n");
    expect("$L audit one --steps 1..12", 0, "12 ledgers of samples");
    expect("$L report one --output page.html && grep -c 'late.bin: [0-9.]* at step 12' page.html",
           0, "2\n");
}

/* The twin of the above: a source by another name, and one sample more of the other. */
CASE(test_other_samples_are_seen)
{
    if (!exists("one"))
        expect(KEYS "$L train blend.yaml $B train.out=one train.steps=12 " SAVES, 0, "hash");
    expect(KEYS "sed 's/0.7/0.6/' blend.yaml >other.yaml; rm -rf two; "
                "$L train other.yaml $B train.out=two train.steps=12 " SAVES "; " SAMPLES
                "records one >a; records two >b; cmp -s a b || echo differ",
           0, "differ\n");
    /* A record whose ledger was altered: the samples are computed again and differ. */
    expect("rm -rf two; cp -r one two; sed -i '/\"step\": 7,/s/\"ledger\": \"./\"ledger\": \"x/' "
           "two/metrics.jsonl; $L audit two --steps 5..8",
           1, "step 7 differs: ledger of samples x");
}

/* Later entries may change when a run goes on; finished steps may not, unless that is said. */
CASE(test_going_on)
{
    expect(KEYS "$L train blend.yaml $B train.out=half train.steps=4 " SAVES "", 0, "hash");
    expect(KEYS "$L train blend.yaml $B train.out=whole train.steps=12 " SAVES, 0, "hash");
    expect(KEYS "sed 's/0.3/0.4/' blend.yaml >changed.yaml; $L train changed.yaml $B "
                "train.out=half train.steps=12 train.resume=auto " SAVES,
           15, "it was trained on other samples (data.blend: ");
    assert_non_null(strstr(output, "Only entries whose from_step is 4 or more may change"));
    expect(
        KEYS
        "cp -r half said; cp -r half later; $L train changed.yaml $B train.out=said train.steps=12 "
        "train.resume=auto data.changed=true " SAVES,
        0, "hash");
    expect(KEYS "$L train blend.yaml $B train.out=half train.steps=12 train.resume=auto "
                "parallel.dp=2 " SAVES "; " SAMPLES "records half >a; records whole >b; cmp a b",
           0, "hash");
    expect(KEYS "sed '/late/s/0.5/0.25/' blend.yaml >later.yaml; $L train later.yaml $B "
                "train.out=later train.steps=12 "
                "train.resume=auto " SAVES,
           0, "(step 4)");
}

/* An entry that begins later may yet change what is done: as the first of its source it changes
 * the order of sources, and its epochs are those of the source. */
CASE(test_later_entries_that_reach_back)
{
#define ENTRIES "{source: corpus_train, weight: 1}, {source: u16:more.bin, weight: 1}"
    static const char *const reaching[] = {
        "[{source: u16:more.bin, weight: 1, from_step: 3}, " ENTRIES "]",
        "[" ENTRIES ", {source: u16:more.bin, weight: 1, epochs: 0.1, from_step: 3}]",
    };
    char line[2048];
    expect(KEYS "$L train $B train.out=reach train.steps=3 batch.global=5 data.tokenizer=byte "
                "'data.blend=[" ENTRIES "]' train.save_every=3",
           0, "hash");
    for (size_t i = 0; i < sizeof reaching / sizeof *reaching; i++) {
        snprintf(line, sizeof line,
                 KEYS "$L train $B train.out=reach train.steps=6 batch.global=5 "
                      "data.tokenizer=byte train.resume=auto "
                      "'data.blend=%s'",
                 reaching[i]);
        expect(line, 15, "neither the order of sources that have begun nor their epochs");
    }
    expect(KEYS
           "$L train $B train.out=reach train.steps=6 batch.global=5 data.tokenizer=byte "
           "train.resume=auto "
           "'data.blend=[{source: u16:late.bin, weight: 1, epochs: 0.1, from_step: 3}, " ENTRIES
           ", {source: u16:more.bin, weight: 2, from_step: 3}]'",
           0, "hash");
    expect("$L audit reach --steps 1..6", 0, "6 ledgers of samples");
}

/* Stores that are called alike in two folders are told apart by what is recorded. */
CASE(test_sources_called_alike)
{
    expect("mkdir -p web code && cp more.bin web/x.bin && cp late.bin code/x.bin && " KEYS
           "$L train $B train.out=alike train.steps=2 data.tokenizer=byte 'data.blend=1 "
           "u16:web/x.bin 1 "
           "u16:code/x.bin' >log && grep -c 'loss/x.bin\": [0-9.]*, \"loss/x.bin (2)\": ' "
           "alike/metrics.jsonl",
           0, "2\n");
    expect("$L report alike --output page.html && grep -c 'x.bin (2): [0-9.]* at step 2' page.html",
           0, "2\n");
}

/* The order that the command prints, computed anew by other means. */
CASE(test_the_order_is_as_defined)
{
    char line[2 * PATH_MAX], source[PATH_MAX];
    LS_ASSERT(realpath("test/cmd/blend_order.py", source));
    if (shell("command -v python3"))
        skip();
    /* 3 + 33 sequences of books and more; 50 samples of late; half an epoch of the former. */
    expect("$L data inspect books,u16:more.bin | awk '/ tokens/ {n += $2} END {print n}'", 0, "");
    long books = (strtol(output, NULL, 10) - 1) / 32;
    expect("$L data inspect corpus_train | awk '/ tokens/ {print $2}'", 0, "");
    long corpus = (strtol(output, NULL, 10) - 1) / 32;
    snprintf(line, sizeof line,
             KEYS
             "$L data order blend.yaml $B data.shuffle=false --steps 300 | python3 %s '"
             "[[\"corpus_train\", \"0.7\", 0, %ld, 0], [\"books,more.bin\", \"0.3\", \"0.5\", "
             "%ld, 0], [\"corpus_train\", \"0.2\", 0, %ld, 24], [\"late.bin\", \"0.5\", 0, 32, "
             "24]]'",
             source, corpus, books, corpus);
    expect(line, 0, "1200 samples agree");
    char *other = strstr(line, "0.7");
    *other = '1'; /* "1.7": the comparison is not blind */
    expect(line, 1, "sample ");
}

CASE(test_bad_blends)
{
    static const struct {
        const char *list, *says;
    } cases[] = {
        {"[{source: corpus_train, weight: 0}]", "the weights sum up to 0"},
        {"[{source: corpus_train, weight: -1}]", "weight = -1: expected a number from 0"},
        {"[{source: corpus_train}]", "an entry without a weight"},
        {"[{weight: 1}]", "an entry without a source"},
        {"[corpus_train]", "expected {source: STORE, weight: NUMBER}"},
        {"[{source: corpus_train, weight: 1, share: 2}]", "unknown key share"},
        {"[{source: none, weight: 1}]", "neither none.bin with its .idx nor none"},
        {"[{source: corpus_train, weight: 1, epochs: 0.1}]", "the data ends behind step "},
        {"[{source: corpus_train, weight: 1, epochs: 1e-9}]", "expected 1 sample or more"},
        {"[{source: corpus_train, weight: 1, from_step: 3}]", "has a weight at sample 0"},
        {"[{source: corpus_train, weight: 1}, {source: corpus_train, weight: 2}]",
         "has two entries from step 0 on"},
        {"0.5 corpus_train 0.5", "the last weight has no store"},
        {"corpus_train 0.5", "corpus_train stands for a weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 KEYS "$L train $B train.steps=100000 train.out=bad 'data.blend=%s'",
                 cases[i].list);
        expect(line, strstr(cases[i].list, "none") ? 16 : 2, cases[i].says);
        assert_non_null(strstr(output, "data.blend"));
    }
    expect("$L train blend.yaml $C train.out=bad", 2, "data.train is set too");
    expect("ls bad", 2, "");
    expect(KEYS "$L train $B train.steps=2 train.out=short 'data.blend=0.5 corpus_train 1 books'",
           0, "hash");
}

/* A store of the same name with other tokens is not what a run goes on with, unless that is said.
 */
CASE(test_other_data_of_the_same_name)
{
    static const char *const given[] = {"data.train=here/corpus",
                                        "data.train= 'data.blend=1 here/corpus 1 corpus_valid'"};
    expect(
        "mkdir here; $L data prepare --input book.txt --output here/a --tokenizer byte "
        "--validation 0; sed 's/sum/mus/' book.txt >other.txt; $L data prepare --input other.txt "
        "--output here/b --tokenizer byte --validation 0; cp here/a.tokenizer "
        "here/corpus.tokenizer",
        0, "");
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char line[1024];
        static const char *const put = "for e in bin idx sums; do cp here/%s_train.$e "
                                       "here/corpus.$e; done; rm -rf same; cp -r first same; $L "
                                       "train $C train.out=same train.steps=4 train.resume=auto "
                                       "%s %s";
        snprintf(line, sizeof line,
                 "for e in bin idx sums; do cp here/a_train.$e here/corpus.$e; done; rm -rf first; "
                 "$L train $C train.out=first train.steps=2 %s",
                 given[i]);
        expect(line, 0, "hash");
        snprintf(line, sizeof line, put, "b", given[i], "");
        expect(line, ls_exit_code(LS_EDATA),
               "corpus has other tokens, masks or weights than the run was trained on");
        expect("$L audit first", ls_exit_code(LS_EDATA),
               i ? "the blend has other tokens, masks or weights than the run was trained on"
                 : "corpus has other tokens, masks or weights than the run was trained on");
        snprintf(line, sizeof line, put, "b", given[i], "data.changed=true");
        expect(line, 0, "hash");
        snprintf(line, sizeof line, put, "a", given[i], "");
        expect(line, 0, "hash");
    }
}

/* Data that change under a run end it before a state that came of them is kept. */
CASE(test_data_that_change)
{
    expect("for e in bin idx; do cp corpus_train.$e own_train.$e; done; cp corpus.tokenizer "
           "own.tokenizer; $L train $C data.train=own_train train.out=spoiled train.steps=1000000 "
           "train.save_every=1 & p=$!; until grep -qs loss_bits spoiled/metrics.jsonl; do kill -0 "
           "$p || exit 9; done; touch -d 2001-01-01 own_train.bin; wait $p",
           ls_exit_code(LS_EDATA), "own_train.bin: changed while it was in use");
}

SUITE_MAIN(setup, scratch_teardown)

/* What the program says to bad input: the exit code of the documented table, and a text that names
 * the file, line or key, what was expected, and what to do. And what a good run leaves behind. */
#include "../support/mpirun.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <lockstep/config.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What one rank writes of the parameters to a checkpoint. */
#define SHARD "shard-00001-model-00001-of-00001.safetensors"
#define RUN   "train run.yaml log.progress=off "
/* A launcher of processes that works for root and with more ranks than cores. Open MPI leaks a
 * little by itself, which a build with the address sanitizer would report. */
#define MPIRUN                                                                                     \
    "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "       \
    "mpirun --oversubscribe -n 2"

/* ---- a folder with a corpus and a configuration --------------------------------------------- */

static char *folder; /* every command runs there */
static char enter[PATH_MAX];

static void expect(const char *arguments, int code, const char *words)
{
    program_expect_under(enter, arguments, code, words);
}

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_path(folder, name), text, strlen(text));
}

static bool exists(const char *name)
{
    return access(scratch_path(folder, name), F_OK) == 0;
}

static int folder_setup(void **state)
{
    int status = scratch_setup(state);
    folder = *state;
    snprintf(enter, sizeof enter, "cd '%s';", folder);
    program_corpus(folder);
    write_text("run.yaml", "model: {preset: gpt2-tiny}\n"
                           "data:\n"
                           "  train: corpus_train\n"
                           "  valid: corpus_valid\n"
                           "batch: {global: 4}\n"
                           "parallel: {threads: 1}\n"
                           "train: {steps: 3, out: run}\n");
    return status;
}

/* ---- configurations ------------------------------------------------------------------------- */

CASE(test_configuration)
{
    expect("train", 2, "model.preset");
    expect("train missing.yaml", ls_exit_code(LS_EIO),
           "missing.yaml: cannot be opened: No such file");
    expect("train run.yaml run.yaml", 2, "one configuration file is expected");
    expect("train run.yaml --dry", 2, "did you mean --dry-run?");
    expect("train", 2, "expected a configuration: lockstep train RUN.yaml, or keys such as");
    expect("train run.yaml --lr 3e-4", 2, "a key is written without dashes: optim.lr=VALUE");
    expect("train run.yaml --optim.lr=1", 2, "a key is written without dashes: optim.lr=VALUE");
    expect("train run.yaml train.steps 3", 2, "train.steps: expected a value: train.steps=VALUE");
    expect("train run.yaml 'train.steps = 3'", 2, "expected no blank in it, and none around =");
    expect("train run.yaml batch=3", 2, "unknown key batch: a group of keys, such as batch.global");
    expect("train --config run.yaml", 2, "the file needs none: lockstep train RUN.yaml");
    expect("train gpt2-124m", ls_exit_code(LS_EIO), "did you mean model.preset=gpt2-124m?");
    expect("train run.yaml --weight-decay=1", 2, "without dashes: optim.weight_decay=VALUE");
    expect(
        "train run.yaml --train-iters 5", 2,
        "unknown option --train-iters; keys are written without dashes: unknown key train-iters; "
        "did you mean train.steps?");
    expect("verify", 2, "expected a configuration: lockstep verify RUN.yaml, or keys such as");
    expect("layout", 2, "expected a configuration: lockstep layout RUN.yaml, or keys such as");
    expect("run.yaml", 2, "unknown command run.yaml; did you mean lockstep train run.yaml?");
    expect("-v", 2, "unknown command -v; did you mean --version?");
    expect("plot run.yaml", ls_exit_code(LS_EDATA), "run.yaml is a file, not a run's directory");
    expect("audit run.yaml", ls_exit_code(LS_EDATA), "run.yaml is a file, not a run's directory");
    expect("eval run.yaml", ls_exit_code(LS_ECKPT),
           "run.yaml: a file, and no llm.c model: expected a run's folder (train.out");
    expect("convert run.yaml", 2, "lockstep convert deepspeed|megatron|torchtitan run.yaml");
    expect("data prepare --input run.yaml --output x --tokenizer vocab.json",
           ls_exit_code(LS_EDATA), "a vocabulary needs its merges");
    expect(RUN "optim.lrr=1", 2, "unknown key optim.lrr; did you mean optim.lr?");
    expect(RUN "optim.lr=fast", 2, "optim.lr = fast: expected a number above 0");
    expect(RUN "train.steps=-1", 2, "a whole number of at least 0");
    expect(RUN "model.heads=3", 2, "a divisor of model.channels = 64");
    expect(RUN "optim.warmup_steps=9 optim.decay_steps=3", 2, "at most optim.decay_steps = 3");
    expect(RUN "data.train=", 2, "data.train");
    write_text("bad.yaml", "model: {preset: gpt2-tiny}\noptim:\n  lr: 1\n  lrr: 2\n");
    expect("train bad.yaml", 2, "bad.yaml:4:3: unknown key optim.lrr; did you mean optim.lr?");
    write_text("bad.yaml", "model: {preset: gpt2-tiny\n");
    expect("train bad.yaml", 2, "bad.yaml:2:1: not YAML");
    assert_false(exists("run"));
}

/* A file is named as the user named it, not as it is called while it is written. */
CASE(test_outputs_are_named)
{
    expect("data prepare --input run.yaml --output no/x --tokenizer byte", ls_exit_code(LS_EIO),
           "no/x_train.bin: cannot be written: No such file or directory; there is no folder no");
    expect("convert megatron --out no/x -- --num-layers 2 --attention-dropout 0",
           ls_exit_code(LS_EIO), "no/x: cannot create: No such file or directory");
}

CASE(test_kinds_of_files)
{
    write_text("ds.json", "{\"fp16\": {}, \"train_batch_size\": 8}\n");
    write_text("tt.toml", "[model]\nname = \"llama3\"\n");
    write_text("config.json", "{\"architectures\": 1, \"model_type\": \"llama\"}\n");
    expect("train ds.json", 2, "; lockstep convert deepspeed ds.json makes one of it");
    expect("train tt.toml", 2, "; lockstep convert torchtitan tt.toml makes one of it");
    expect("train config.json", 2, "; a model's folder is given as model.from=FOLDER");
    expect("train .", 2, "; a model's folder is given as model.from=.");
    expect("data prepare --input run.yaml --output x --tokenizer byte --validation 10%", 2,
           "--validation = 10%: expected a number: 10% is 0.1");
    expect("data prepare --input run.yaml --output x/ --tokenizer byte", 2,
           "data prepare: output \"x/\": a folder");
    expect("status .", ls_exit_code(LS_EIO), ". is no run's folder: it has no config.yaml");
    expect("layout run.yaml parallel.pp=16", ls_exit_code(LS_ELAYOUT),
           "16 stages (1 chunk a rank) need a layer each");
    expect("plot run --output x.png", 2, "--output = x.png: expected a name that ends in .svg");
    expect("report run --output x.pdf", 2, "--output = x.pdf: expected a name that ends in .html");
    expect("layout run.yaml --svg x.html", 2, "--svg = x.html: expected a name that ends in .svg");
    write_text("cluster.yaml", "name: a\nhosts: 1\naccelerators: 1\n");
    expect("train cluster.yaml", 2, "; a cluster is given as --cluster cluster.yaml");
    expect("plan run.yaml --cluster run.yaml", 2, "model is a group of a run's configuration");
    write_text("cluster.yaml", "name: a\nnodes: 1\n");
    expect("plan run.yaml --cluster cluster.yaml", 2,
           "cluster.yaml:2:1: unknown key nodes; did "
           "you mean hosts?");
}

/* What records and files are for, and folders that are not what they seem. */
CASE(test_data)
{
    write_text("talks.jsonl", "{\"messages\": []}\n");
    write_text("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    write_text("tokenizer_config.json", "{}");
    expect("data prepare --input talks.jsonl --output x --tokenizer byte", ls_exit_code(LS_EDATA),
           "conversations are prepared with --chat");
    expect("data prepare --input pairs.jsonl --output x --tokenizer byte", ls_exit_code(LS_EDATA),
           "prompts with completions are prepared with --pairs");
    expect("data prepare --input run.yaml --output x --tokenizer tokenizer_config.json",
           ls_exit_code(LS_EDATA), "settings without a vocabulary: expected the folder");
    assert_int_equal(mkdir(scratch_path(folder, "corpus"), 0777), 0);
    expect(RUN "data.train=corpus", ls_exit_code(LS_EDATA), "did you mean corpus_train?");
    assert_int_equal(rmdir(scratch_path(folder, "corpus")), 0);
    expect(RUN "train.steps=1 train.out=both data.train=./", 0,
           "data.train and data.valid both have ");
    expect(RUN "train.steps=1 train.out=apart", 0, "hash ");
}

CASE(test_layout)
{
    int code = ls_exit_code(LS_ELAYOUT);
    expect(RUN "parallel.dp=3", code, "parallel.dp");
    expect(RUN "parallel.dp=64", code, "parallel.dp");
    expect(RUN "batch.micro=1 numerics.leaf_sequences=4 data.sequence=40", code,
           "the nearest that works is batch.micro = 4");
    expect(RUN "batch.micro=64", code, "batch.micro = 64: expected at most");
    expect(RUN "parallel.dp=2 numerics.leaf_sequences=4", code,
           "a smaller numerics.leaf_sequences");
    assert_false(exists("run"));
}

/* Each key of group `parallel`: the text begins with the key, says what does not fit, and ends with
 * the nearest layout that works. */
CASE(test_parallel_keys)
{
    static const struct {
        const char *keys, *key, *why, *nearest;
    } refused[] = {
        {"parallel.tp=3", "parallel.tp = 3", "heads, 4", "parallel.tp = 4"},
        {"parallel.tp=4 numerics.tp_tiles=2", "parallel.tp = 4", "numerics.tp_tiles, 2",
         "parallel.tp = 2"},
        {"parallel.tp=4 model.ffn=250", "parallel.tp = 4", "feed-forward width, 250", "parallel."},
        {"parallel.pp=8", "parallel.pp = 8", "the model has 4", "parallel.pp = 4"},
        {"parallel.pp=2 parallel.schedule=interleaved parallel.chunks=4", "parallel.pp = 2",
         "8 stages (4 chunks a rank)", "parallel.chunks = 0"},
        {"parallel.pp=2 parallel.schedule=dualpipev batch.micro=2", "parallel.pp = 2",
         "at least 4 micro-batches, and a step has 2", "batch.micro = 1"},
        {"parallel.cp=2", "parallel.cp = 2", "numerics.seq_tiles = 1;", "parallel.cp = 1"},
        {"parallel.zero=3 parallel.dp_shard=2 parallel.persist=1000000000",
         "parallel.persist = 1000000000", "would shard nothing", "parallel.persist = 0"},
        {"parallel.dp=4 parallel.dp_shard=3", "parallel.dp = 4",
         "not a multiple of parallel.dp_shard", "parallel.dp_shard = 4"},
        {"parallel.sp=true", "parallel.sp = true", "parallel.tp is 1", "parallel.sp = auto"},
        {"parallel.pp=2 parallel.split=0-1,3-3", "parallel.split = 0-1,3-3", "without gap",
         "parallel.split = "},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        static char output[PROGRAM_OUTPUT_BYTES];
        char arguments[256];
        snprintf(arguments, sizeof arguments, "%s%s", RUN, refused[i].keys);
        int code = program_run(enter, arguments, output);
        const char *nearest = strstr(output, "the nearest that works is ");
        if (code != ls_exit_code(LS_ELAYOUT) || !strstr(output, refused[i].key) ||
            !strstr(output, refused[i].why) || !nearest || !strstr(nearest, refused[i].nearest))
            fail_msg("%s\nexited with %d and printed:\n%s\nexpected \"%s\", \"%s\", nearest \"%s\"",
                     refused[i].keys, code, output, refused[i].key, refused[i].why,
                     refused[i].nearest);
    }
    assert_false(exists("run"));
}

CASE(test_schedules_of_files)
{
    const char *arguments = RUN "parallel.pp=2 parallel.schedule=csv parallel.schedule_file=s.csv";
    int code = ls_exit_code(LS_ELAYOUT);
    write_text("s.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    expect(arguments, code, "parallel.schedule_file = s.csv");
    expect(
        arguments, code,
        "deadlock: 0B0 on rank 0 waits for 1B0 on rank 1; 1F1 on rank 1 waits for 0F1 on rank 0");
    write_text("s.csv", "0F0,0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    expect(arguments, code, "0F0 (rank 0, line 1, cell 2) repeats");
    write_text("s.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1\n");
    expect(arguments, code, "1W1 is missing on rank 1, line 2");
    write_text("s.csv", "0F0,hello\n");
    expect(arguments, ls_exit_code(LS_EDATA), "line 1, cell 2: \"hello\" is not an action");
    unlink(scratch_path(folder, "s.csv"));
    expect(arguments, ls_exit_code(LS_EIO), "s.csv: cannot be opened");
    expect(RUN "parallel.pp=2 parallel.schedule=csv", 2, "parallel.schedule_file");
    expect(RUN "parallel.zero=4", 2, "a whole number from 0 to 3");
    expect(RUN "parallel.schedule=zb", 2, "did you mean zbv?");
    assert_false(exists("run"));
}

CASE(test_world_of_another_size)
{
    char before[2 * PATH_MAX];
    mpirun_or_skip();
    snprintf(before, sizeof before, "%s %s", enter, MPIRUN);
    program_expect_under(before, RUN "parallel.dp=4", ls_exit_code(LS_ELAYOUT), "parallel.dp = 2");
    program_expect_under(before, RUN "parallel.tp=2 parallel.pp=2", ls_exit_code(LS_ELAYOUT),
                         "needs 4 ranks, but 2 were started");
    assert_false(exists("run"));
}

/* Each of a machine's processes finds the same error; it is told once. */
CASE(test_processes_tell_an_error_once)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char before[2 * PATH_MAX];
    mpirun_or_skip();
    snprintf(before, sizeof before, "%s %s", enter, MPIRUN);
    int code = program_run(before, RUN "parallel.tpp=2", output);
    const char *at = strstr(output, "lockstep train: command line: unknown key parallel.tpp");
    if (code != ls_exit_code(LS_ECONFIG) || !at || strstr(at + 1, "lockstep train: "))
        fail_msg("exited with %d and printed:\n%s", code, output);
}

/* ---- what an error tells -------------------------------------------------------------------- */

enum { WORDS_MAX = 6 };
struct told {
    const char *arguments;
    int code;
    const char *words[WORDS_MAX]; /* all of them are in the message */
};

static void expect_told(const struct told *cases, size_t count)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    for (size_t i = 0; i < count; i++) {
        int code = program_run(enter, cases[i].arguments, output);
        if (code != cases[i].code)
            fail_msg("lockstep %s\nexited with %d, expected %d, and printed:\n%s",
                     cases[i].arguments, code, cases[i].code, output);
        for (int w = 0; w < WORDS_MAX && cases[i].words[w]; w++)
            if (!strstr(output, cases[i].words[w]))
                fail_msg("lockstep %s\nprinted:\n%s\nwhich lacks: %s", cases[i].arguments, output,
                         cases[i].words[w]);
        for (const char *p = output; *p; p++)
            if ((unsigned char)*p < 0x20 && *p != '\n')
                fail_msg("lockstep %s\nprinted the byte %d", cases[i].arguments, *p);
    }
}

/* Which key or argument, where it was given, why, and what is near. */
CASE(test_what_errors_tell)
{
    int io = ls_exit_code(LS_EIO), data = ls_exit_code(LS_EDATA), ckpt = ls_exit_code(LS_ECKPT);
    write_text("typo.yaml", "model: {preset: gpt2-tiny}\n"
                            "data:\n"
                            "  train: corpus_trian\n");
    write_text("hostile.yaml", "model: {preset: gpt2-tiny}\n"
                               "optim: {name: \"\\e[31m\\a\"}\n");
    write_text("prefix_only.bin", "");
    expect(RUN "train.out=told train.save_every=1 train.keep=3", 0, "");
    expect(RUN "train.out=best eval.every=1 train.keep_best=true", 0, "");
    write_text("told/checkpoints/step-00000001/manifest.json", "{\"format\": \n\x1b]0;x\x07");
    const struct told cases[] = {
        {"train typo.yaml",
         io,
         {"typo.yaml:3:10: data.train: neither corpus_trian.bin", "corpus_trian.bin with its .idx",
          "No such file", "did you mean corpus_train?"}},
        {RUN "data.train=corpus_trian",
         io,
         {"command line: data.train", "did you mean corpus_train?"}},
        {RUN "data.valid=corpus_vlid",
         io,
         {"command line: data.valid", "did you mean corpus_valid?"}},
        {RUN "data.train=nowhere/corpus_train", io, {"data.train", "there is no folder nowhere"}},
        {RUN "data.train=prefix_only", io, {"data.train", "prefix_only.idx", "No such file"}},
        {RUN "data.train=text.txt", data, {"data.train", "text.txt", "u16:text.txt"}},
        {RUN "data.tokenizer=bite", data, {"command line: data.tokenizer", "expected \"byte\""}},
        {RUN "data.sequence=64 model.context=100000 data.sequence=90000",
         data,
         {"run.yaml:3:10: data.train", "90000 tokens"}},
        {RUN "train.steps=1e-3", 2, {"command line: train.steps = 1e-3", "not whole"}},
        {RUN "train.steps=1.5e0", 2, {"train.steps = 1.5e0", "not whole"}},
        {RUN "train.resume=told/checkpoints/step-00000009",
         io,
         {"command line: train.resume", "did you mean told/checkpoints/step-0000000"}},
        {RUN "train.out=text.txt", io, {"command line: train.out", "text.txt"}},
        {RUN "optim.name=adagrad", 2, {"optim.name = adagrad", "sgd, lion or muon"}},
        {RUN "optim.learning_rate=1", 2, {"command line", "did you mean optim.lr?"}},
        {RUN "optim.n_layer=1", 2, {"did you mean model.layers?"}},
        {"train hostile.yaml", 2, {"hostile.yaml:2:15: optim.name = \\x1b[31m\\x07"}},
        {"train \"$(printf '\\033[31m\\tx')\"", io, {"\\x1b[31m\\tx: cannot be opened"}},
        {"train run.yaml \"$(printf 'a\\033[31m=1')\"", 2, {"unknown key a\\x1b[31m"}},
        {"\"$(printf 'tr\\033[31main')\"", 2, {"unknown command tr\\x1b[31main"}},
        {"train \"$(printf -- '--\\233\\377')\"", 2, {"unknown option --\\x9b\\xff"}},
        {"eval told/checkpoints/step-00000002 --threads 1", 0, {"step 2 "}},
        {"eval told/checkpoints/step-00000002/ --threads 1", 0, {"step 2 "}},
        {"eval told/ --step 2 --threads 1", 0, {"step 2 "}},
        {"eval told --step latest --threads 1", 0, {"step 3 "}},
        {"eval told/checkpoints/step-00000002 --step 3 --threads 1", 0, {"step 3 "}},
        {"eval told --step 4", ckpt, {"step 4: told", "steps 3, 2", "latest"}},
        {"eval told --step last", 2, {"step last", "the number of a step"}},
        {"eval told --step best", ckpt, {"told has no best checkpoint", "train.keep_best"}},
        {"eval best --step best --threads 1", 0, {"step 3 "}},
        {"eval best/checkpoints/best --threads 1", 0, {"step 3 "}},
        {"eval told/checkpoints/step-00000001",
         ckpt,
         {"step-00000001/manifest.json:2:", "not JSON"}},
        {"eval tolt",
         io,
         {"tolt: expected a folder with config.json",
          "no such folder or file; did you mean told?"}},
        {"eval told corpus_vlid", io, {"DATA: neither corpus_vlid.bin", "mean corpus_valid?"}},
        {"generate told/checkpoints/step-00000002/ --prompt beer --tokens 1 --threads 1 | head -c "
         "4",
         0,
         {"beer"}},
        {"plot told/checkpoints/step-00000002/", 0, {"told/loss.svg"}},
    };
    expect_told(cases, sizeof cases / sizeof cases[0]);
}

/* The runs and data that a command is given; those of the test before. */
CASE(test_runs_as_given)
{
    int io = ls_exit_code(LS_EIO), data = ls_exit_code(LS_EDATA);
    int config = ls_exit_code(LS_ECONFIG);
    const struct told cases[] = {
        {"eval told text.txt", data, {"DATA: text.txt: not a token store", "u16:text.txt"}},
        {"eval told ''", config, {"DATA is empty: expected a token store"}},
        {"report tolt", io, {"tolt", "No such file", "did you mean told?"}},
        {"report nowhere/told", io, {"there is no folder nowhere"}},
        {"report told/checkpoints/step-00000002/", 0, {"told/report.html"}},
        {"report best/checkpoints/best", 0, {"best/report.html"}},
        {"diff told tolt", io, {"tolt/config.yaml", "did you mean told/config.yaml?"}},
        {"diff told best/checkpoints/step-00000002", 0, {"equal up to step 3"}},
        {"diff told/checkpoints/step-00000003/ best", 0, {"equal up to step 3"}},
    };
    expect_told(cases, sizeof cases / sizeof cases[0]);
}

/* A layout that does not fit is refused by the keys that were given, not by those that they become.
 */
CASE(test_layout_keys_as_given)
{
    int layout = ls_exit_code(LS_ELAYOUT);
    const struct told cases[] = {
        {RUN "parallel.dp_replicate=3",
         layout,
         {"command line: parallel.dp_replicate = 3: it does not divide"}},
        {RUN "parallel.dp_shard=3",
         layout,
         {"command line: parallel.dp_shard = 3: it does not divide"}},
        {RUN "parallel.dp=3", layout, {"command line: parallel.dp = 3: it does"}},
        {RUN "parallel.dp_shard=3 parallel.dp_replicate=2",
         layout,
         {"command line: parallel.dp_shard = 3: it does not divide"}},
        {RUN "parallel.dp_shard=4 parallel.dp_replicate=2",
         layout,
         {"command line: parallel.dp_replicate = 2", "with parallel.dp_shard = 4"}},
        {RUN "parallel.dp=3 parallel.zero=1", layout, {"command line: parallel.dp = 3: it does"}},
        {RUN "parallel.dp=4 parallel.dp_shard=2 batch.global=6 parallel.zero=2",
         layout,
         {"command line: parallel.dp = 4: it does not divide a batch of 6 leaves"}},
        {RUN "parallel.pp=2 parallel.schedule=csv parallel.schedule_file=/dev/null",
         ls_exit_code(LS_EDATA),
         {"command line: parallel.schedule_file = /dev/null"}},
        {RUN "parallel.threads=4096",
         layout,
         {"command line: parallel.threads = 4096: this machine has", "expected at most"}},
        {RUN "model.channels=32768 model.heads=4096 model.layers=100 model.ffn=4194304",
         layout,
         {"of memory, and it has", "memory.overcommit=true"}},
        {"eval told --threads 4096", 2, {"--threads = 4096: expected a whole number from 1 to"}},
    };
    expect_told(cases, sizeof cases / sizeof cases[0]);
}

/* Every key of the table, given a value of the wrong type, out of range, or misspelt, on a command
 * line and in a file: the message names the key, where it was given and what was expected. */
static void expect_named(const char *how, const char *output, const struct ls_config_key *key,
                         const char *origin, const char *expected)
{
    if (!strstr(output, key->name) || !strstr(output, origin) || !strstr(output, "expected ") ||
        !strstr(output, expected))
        fail_msg("%s\ngave:\n%s\nexpected %s, %s and: %s", how, output, key->name, origin,
                 expected);
}

static void sweep(const struct ls_config_key *key, const char *value, const char *expected)
{
    struct ls_config config;
    struct ls_error error = {0};
    char text[1024];
    ls_config_defaults(&config);
    snprintf(text, sizeof text, "%s=%s", key->name, value);
    assert_int_equal(ls_config_set(&config, text, &error), LS_ECONFIG);
    expect_named(text, error.text, key, "command line: ", expected);
    snprintf(text, sizeof text, "# a comment\n%s: %s\n", key->name, value);
    assert_int_equal(ls_config_load_text(&config, "a.yaml", text, strlen(text), &error),
                     LS_ECONFIG);
    expect_named(text, error.text, key, "a.yaml:2:", expected);
}

/* The same through the program, for one value of a key. */
static void sweep_program(const struct ls_config_key *key, bool in_file, const char *value)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    char arguments[1024], text[1024];
    snprintf(text, sizeof text, "# a comment\n%s: %s\n", key->name, value);
    write_text("sweep.yaml", text);
    snprintf(arguments, sizeof arguments, "train sweep.yaml");
    if (!in_file)
        snprintf(arguments, sizeof arguments, "train '%s=%s'", key->name, value);
    int code = program_run(enter, arguments, output);
    expect_named(arguments, output, key, in_file ? "sweep.yaml:2:" : "command line: ", "");
    assert_int_equal(code, 2);
}

CASE(test_bad_values_of_every_key)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    char text[LS_CONFIG_TEXT_BYTES + 8];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct ls_config_key *key = &keys[i];
        bool number = key->type == LS_CONFIG_INT || key->type == LS_CONFIG_REAL;
        char beyond[64], slip[64];
        if (number) {
            sweep(key, "soon", "number");
            snprintf(beyond, sizeof beyond, "%.0f", key->min - 1);
            sweep(key, beyond, "number");
            sweep(key, "1e400", "number");
        }
        if (key->type == LS_CONFIG_INT)
            sweep(key, "1.5", "this one is not whole");
        if (key->type == LS_CONFIG_BOOL)
            sweep(key, "maybe", "true or false");
        if (key->type == LS_CONFIG_WORD) {
            snprintf(slip, sizeof slip, "%sx", key->words[0].word);
            snprintf(beyond, sizeof beyond, "did you mean %s?", key->words[0].word);
            sweep(key, slip, beyond);
            sweep(key, "quite_another_word", key->words[0].word);
        }
        bool is_text = key->type == LS_CONFIG_STRING || key->type == LS_CONFIG_PATH ||
                       key->type == LS_CONFIG_PATHS;
        if (is_text)
            sweep(key, text, "at most 511 bytes");
        sweep_program(key, i % 2, is_text ? text : "quite_another_word");
    }
}

/* Every key with a letter too many leads back to itself. */
CASE(test_misspelt_keys)
{
    size_t count;
    const struct ls_config_key *keys = ls_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        struct ls_config config;
        struct ls_error error = {0};
        char assignment[128], meant[128];
        snprintf(assignment, sizeof assignment, "%sq=1", keys[i].name);
        snprintf(meant, sizeof meant, "did you mean %s?", keys[i].name);
        ls_config_defaults(&config);
        assert_int_equal(ls_config_set(&config, assignment, &error), LS_ECONFIG);
        if (!strstr(error.text, meant) || !strstr(error.text, "command line: "))
            fail_msg("%s: %s", assignment, error.text);
    }
}

/* ---- files that do not end, and other files that are none ----------------------------------- */

/* Each reader of a file, given a file that never ends: refused at once, with the limit or the kind,
 * and the name. */
CASE(test_files_without_end)
{
    expect(RUN "train.out=endless", 0, "");
    mkdir(scratch_path(folder, "endless-tokenizer"), 0777);
    symlink("/dev/zero", scratch_path(folder, "endless-tokenizer/vocab.json"));
    symlink("/dev/zero", scratch_path(folder, "endless-tokenizer/merges.txt"));
    symlink("/dev/zero", scratch_path(folder, "zero.tokenizer"));
    symlink("corpus_train.bin", scratch_path(folder, "zero.bin"));
    symlink("corpus_train.idx", scratch_path(folder, "zero.idx"));
    symlink("/dev/zero", scratch_path(folder, "zero.jsonl.gz"));
    int config = 2, data = ls_exit_code(LS_EDATA), checkpoint = ls_exit_code(LS_ECKPT);
    const struct {
        const char *arguments;
        int code;
        const char *words;
    } readers[] = {
        {"train /dev/zero", config, "configuration: /dev/zero: it does not end"},
        {RUN "parallel.pp=2 parallel.schedule=csv parallel.schedule_file=/dev/zero", data,
         "parallel.schedule_file = /dev/zero"},
        {RUN "data.train=/dev/zero", data,
         "data.train: /dev/zero: a device: expected a regular file"},
        {RUN "data.train=u16:/dev/zero model.vocab=512", data, "/dev/zero: a device"},
        {RUN "data.tokenizer=/dev/zero,/dev/zero", data, "it does not end: expected at most"},
        {RUN "data.tokenizer=endless-tokenizer", ls_exit_code(LS_EIO),
         "links to /dev/zero, which is not in the"},
        {RUN "data.train=zero", data, "zero.tokenizer: it does not end"},
        {"data prepare --input /dev/zero --output bad --tokenizer byte", data,
         "/dev/zero: a device: expected a regular file or a pipe"},
        {"data prepare --input zero.jsonl.gz --output bad --tokenizer byte", data,
         "zero.jsonl.gz: a device"},
        {"data inspect /dev/zero", data, "/dev/zero: a device"},
    };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        program_expect_under(enter, readers[i].arguments, readers[i].code, readers[i].words);
    static const char *const of_a_run[][3] = {
        {"checkpoints/step-00000003/manifest.json", "eval", "it does not end"},
        {"checkpoints/step-00000003/" SHARD, "eval", SHARD},
        {"config.yaml", "eval", "config.yaml: it does not end"},
        {"metrics.jsonl", "plot", "metrics.jsonl: a device"},
    };
    for (size_t i = 0; i < sizeof of_a_run / sizeof of_a_run[0]; i++) {
        char path[PATH_MAX], kept[PATH_MAX + 8], arguments[64];
        snprintf(path, sizeof path, "%s/endless/%s", folder, of_a_run[i][0]);
        snprintf(kept, sizeof kept, "%s.kept", path);
        assert_int_equal(rename(path, kept), 0);
        assert_int_equal(symlink("/dev/zero", path), 0);
        snprintf(arguments, sizeof arguments, "%s endless", of_a_run[i][1]);
        int code = i < 2 ? checkpoint : i == 2 ? config : data;
        program_expect_under(enter, arguments, code, of_a_run[i][2]);
        assert_int_equal(rename(kept, path), 0);
    }
    assert_int_equal(mkfifo(scratch_path(folder, "pipe"), 0600), 0);
    program_expect_under(enter, RUN "data.train=pipe", data,
                         "data.train: pipe: a pipe: expected a regular");
    program_expect_under(enter, "train pipe", config, "pipe: no data came through it");
}

/* Pipes that somebody fills are files like others. */
CASE(test_pipes)
{
    char before[2 * PATH_MAX];
    snprintf(before, sizeof before, "%s cat text.txt |", enter);
    program_expect_under(before, "data prepare --input /dev/stdin --output piped --tokenizer byte",
                         0, "piped_train");
    program_expect_under(before, "data prepare --input - --output piped --tokenizer byte", 0,
                         "piped_train  1 document");
    snprintf(before, sizeof before, "%s echo '{\"text\": \"a b\"}' |", enter);
    program_expect_under(before, "data filter --input jsonl:- --output -", 0, "1 document, 0 kept");
    program_expect_under(before, "data split jsonl:- --output piped --parts 2",
                         ls_exit_code(LS_EDATA), "no document for part 1 of 2");
    snprintf(before, sizeof before, "%s (sleep 1; cat run.yaml) |", enter);
    program_expect_under(before, "train /dev/stdin log.progress=off train.out=piped", 0, "");
}

/* ---- data ----------------------------------------------------------------------------------- */

/* A shell's pattern names any number of them. */
CASE(test_many_inputs)
{
    char before[2 * PATH_MAX];
    snprintf(before, sizeof before, "%s mkdir many; for i in `seq 300`; do echo a >many/$i; done;",
             enter);
    program_expect_under(before, "data dedup --input many/* --output -", 0,
                         "300 documents, 1 kept");
    program_expect_under(enter, "data merge `seq 300` --output none", ls_exit_code(LS_EIO),
                         "neither 1.bin");
}

/* Its reader would go by the name. */
CASE(test_an_output_that_is_named_as_if_packed)
{
    int code = ls_exit_code(LS_EINVAL);
    program_expect_under(enter, "data dedup --input text.txt --output o.jsonl.gz", code,
                         "o.jsonl.gz: what is written is not packed");
    program_expect_under(enter, "data filter --input text.txt --output o --explain why.zst", code,
                         "why.zst: what is written is not packed");
    program_expect_under(enter, "data detokenize corpus_valid --output o.gz", code, "not packed");
}

/* What was done before is not read again, so nobody knows how much text that was. */
CASE(test_what_goes_on_counts_no_text)
{
    const char *const text[] = {" bytes of text", "tokens; 1 were done before"};
    for (int i = 0; i < 2; i++)
        program_expect_under(enter, "data detokenize corpus_valid --output texts/", 0, text[i]);
}

/* A copy of the corpus whose .idx or .bin is changed at offset and cut to bytes (-1: as it is). */
static void damage(const char *extension, long offset, const char *with, long bytes)
{
    static const char *const extensions[] = {"bin", "idx"};
    for (int i = 0; i < 2; i++) {
        char from[64], to[64];
        size_t size;
        snprintf(from, sizeof from, "corpus_train.%s", extensions[i]);
        snprintf(to, sizeof to, "damaged.%s", extensions[i]);
        char *data = scratch_read(scratch_path(folder, from), &size);
        if (strcmp(extension, extensions[i]) == 0) {
            memcpy(data + offset, with, strlen(with));
            size = bytes >= 0 ? (size_t)bytes : size;
        }
        scratch_write(scratch_path(folder, to), data, size);
        free(data);
    }
}

CASE(test_token_stores)
{
    int code = ls_exit_code(LS_EDATA);
    const char *arguments = RUN "data.train=damaged data.tokenizer=byte";
    damage("idx", 0, "NOTMAGIC", -1);
    expect(arguments, code, "damaged.idx");
    damage("idx", 17, "\x63", -1); /* the dtype */
    expect(arguments, code, "dtype");
    damage("idx", 0, "", 40);
    expect(arguments, code, "damaged.idx");
    damage("bin", 0, "", 1000);
    expect(arguments, code, "damaged");
    damage("bin", 0, "\xff\xff\xff\xff\xff\xff\xff\xff", -1);
    expect(RUN "data.train=damaged data.tokenizer=byte data.shuffle=false", code, "65535");
    expect(RUN "data.train=nothing data.tokenizer=byte", ls_exit_code(LS_EIO), "nothing");
    write_text("short.txt", "too short\n");
    expect("data prepare --input short.txt --output short --tokenizer byte", 0, "short_train");
    expect(RUN "data.train=short_train data.valid=", code, "64");
    assert_false(exists("run/checkpoints/step-00000003"));
}

CASE(test_preparation)
{
    int data = ls_exit_code(LS_EDATA);
    write_text("empty.txt", "");
    expect("data prepare --input empty.txt --output bad --tokenizer byte", data, "empty");
    expect("data prepare --input no.txt --output bad --tokenizer byte", ls_exit_code(LS_EIO),
           "no.txt");
    expect("data prepare --output bad --tokenizer byte", 2, "--input");
    write_text("mixed.jsonl", "{\"text\": \"good\"}\n{\"body\": \"no text\"}\n\x1b[31m\n");
    expect("data prepare --input mixed.jsonl --output mixed --tokenizer byte", data,
           "mixed.jsonl:2: no key \"text\", the record has \"body\"");
    expect("data prepare --input mixed.jsonl --output mixed --tokenizer byte --on-error skp", 2,
           "--on-error = skp: expected stop or skip; did you mean skip?");
    assert_false(exists("mixed_train.bin") || exists("mixed.skipped.txt"));
    expect("data prepare --input mixed.jsonl --output mixed --tokenizer byte --on-error skip "
           "--validation 0",
           0, "2 bad records skipped: mixed.skipped.txt lists them");
    assert_true(exists("mixed_train.bin") && exists("mixed.skipped.txt"));
    /* Each command that says "use --on-error skip" has it. */
    static const char *const others[] = {
        "data dedup --input mixed.jsonl --output mixed.out",
        "data filter --input mixed.jsonl --output mixed.out",
        "data split mixed.jsonl --parts 1,1 --output mixed",
        "data train-tokenizer --input mixed.jsonl --output learned --vocab 300"};
    write_text("mixed.jsonl", "{\"text\": \"good\"}\n{\"text\": \n{\"text\": \"better\"}\n");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char skips[256];
        snprintf(skips, sizeof skips, "%s --on-error skip", others[i]);
        expect(others[i], data, "use --on-error skip");
        expect(skips, 0, "1 bad record");
    }
    expect("data prepare --input text.txt --output bad --tokenizer byte --validation 2", 2,
           "--validation");
    expect("data prepare --input text.txt --output bad --tokenizer byte --bogus", 2, "--bogus");
    mkdir(scratch_path(folder, "tokenizer"), 0777);
    write_text("tokenizer/vocab.json", "{\"a\": 0, \"a\": 1}");
    write_text("tokenizer/merges.txt", "#version: 0.2\n");
    expect("data prepare --input text.txt --output bad --tokenizer tokenizer", data, "vocab.json");
    assert_false(exists("bad_train.bin") || exists("bad_train.idx") || exists("bad.tokenizer"));
}

/* ---- runs ----------------------------------------------------------------------------------- */

CASE(test_a_run_and_its_checkpoints)
{
    expect(RUN "train.out=made", 0, "");
    assert_true(exists("made/config.yaml") && exists("made/metrics.jsonl") &&
                exists("made/checkpoints/step-00000003/" SHARD));
    expect(RUN "train.out=made train.resume=auto optim.lr=1", ls_exit_code(LS_ECKPT),
           "optim.lr: 1 here, 0.0006 there");
    expect("eval made --threads 1", 0, "bits per byte");
    expect("generate made --prompt beer --tokens 8 --threads 1", 0, "beer");
    expect("generate made --temperature hot", 2, "--temperature = hot");
    expect("generate nowhere", ls_exit_code(LS_EIO), "nowhere");
    truncate(scratch_path(folder, "made/checkpoints/step-00000003/" SHARD), 1000);
    expect("eval made", ls_exit_code(LS_ECKPT), "step-00000003");
}

/* Starts a long run, waits until it has added a line to metrics.jsonl, and tells it to stop. */
static void expect_stopped(const char *arguments, const char *words)
{
    char before[2 * PATH_MAX], command[1024];
    snprintf(before, sizeof before,
             "%s lines() { cat stopped/metrics.jsonl 2>/dev/null | wc -l; }; n=$(lines);", enter);
    snprintf(command, sizeof command,
             "%s & pid=$!; while kill -0 $pid && test $(lines) -le $n; do sleep 0.02; done;"
             "kill -TERM $pid; wait $pid",
             arguments);
    program_expect_under(before, command, ls_exit_code(LS_ESTOPPED), words);
}

CASE(test_stopping_and_going_on)
{
    const char *run = "train run.yaml log.progress=plain train.out=stopped train.steps=1000000";
    char again[256];
    expect_stopped(run, "saved stopped/checkpoints/step-");
    snprintf(again, sizeof again, "%s train.resume=auto", run);
    expect_stopped(again, "going on after step");
}

/* A limit on the size of files stands for a full disk. */
CASE(test_no_space)
{
    char before[2 * PATH_MAX];
    snprintf(before, sizeof before, "%s ulimit -f 8;", enter);
    program_expect_under(before, "data prepare --input text.txt --output full --tokenizer byte",
                         ls_exit_code(LS_EIO), "full_train.bin");
    assert_false(exists("full_train.bin") || exists("full_train.idx") || exists("full.tokenizer"));
    snprintf(before, sizeof before, "%s ulimit -f 100;", enter);
    program_expect_under(before, RUN "train.out=full", ls_exit_code(LS_EIO), "safetensors");
    assert_false(exists("full/checkpoints/step-00000003"));
}

CASE(test_a_loss_that_is_not_finite)
{
    const char *wild = RUN "train.out=wild train.steps=40 optim.lr=1000 optim.clip=0 "
                           "optim.schedule=constant optim.name=sgd optim.weight_decay=100 ";
    char arguments[512];
    expect(wild, ls_exit_code(LS_ENUMERIC), "train.on_nonfinite=skip");
    snprintf(arguments, sizeof arguments, "%strain.on_nonfinite=skip train.out=skipped", wild);
    expect(arguments, 0, "");
    assert_true(exists("skipped/checkpoints/step-00000040"));
}

/* Text of a model goes to a terminal escaped, and to a pipe as it is. script(1) makes a terminal.
 */
static bool terminal_made(void)
{
    bool made = system("command -v script >/dev/null 2>&1") == 0;
    if (!made)
        print_message("skipped: no script(1) to make a terminal\n");
    return made;
}

/* Of what the line prints, first what went to a pipe, then what went to a terminal. */
static void expect_escaped(const char *line)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    program_run(line, "--version", output);
    char *raw = strstr(output, "caf\303\251\033[31m");
    if (!raw)
        fail_msg("in a pipe: %s", output);
    char *shown = strstr(raw, "caf\303\251\\x1b[31m");
    if (!shown || strstr(raw + 5, "caf\303\251\033[31m"))
        fail_msg("on a terminal: %s", output);
}

CASE(test_generated_text_on_a_terminal)
{
    char path[PATH_MAX], before[5 * PATH_MAX];
    if (!terminal_made())
        skip();
    program_path(path, sizeof path);
    expect(RUN "train.out=spoken", 0, "");
    write_text("say.sh", "exec \"$1\" generate spoken --prompt \"$(printf 'caf\303\251\033[31m')\" "
                         "--tokens 1 --threads 1\n");
    snprintf(before, sizeof before,
             "%s sh say.sh '%s' > raw; script -qec \"sh say.sh '%s'\" shown </dev/null >/dev/null; "
             "cat raw shown; :",
             enter, path, path);
    expect_escaped(before);
}

/* A sample of lockstep train too. */
CASE(test_samples_on_a_terminal)
{
    char path[PATH_MAX], before[5 * PATH_MAX];
    if (!terminal_made())
        skip();
    program_path(path, sizeof path);
    write_text("sample.sh", "exec \"$1\" " RUN "\"train.out=$2\" log.progress=plain sample.every=3 "
                            "sample.tokens=1 "
                            "\"sample.prompt=$(printf 'caf\303\251\033[31m')\"\n");
    snprintf(before, sizeof before,
             "%s sh sample.sh '%s' sampled > raw; script -qec \"sh sample.sh '%s' typed\" shown "
             "</dev/null >/dev/null; cat raw shown; :",
             enter, path, path);
    expect_escaped(before);
}

SUITE_MAIN(folder_setup, scratch_teardown)

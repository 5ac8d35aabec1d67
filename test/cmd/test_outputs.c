/* Every option that names a file to write: a link stays and its target is written, a pipe and a
 * device are written to, "-" is standard output, and a failure leaves what stood there. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "runs.h"

#include <lockstep/base.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What writes a file, but for the file's name, which comes last. `twice`: the same file each time.
 * `slow`: with all tests only. */
static const struct row {
    const char *page, *option, *line;
    bool twice, slow;
} rows[] = {
    {"eval", "--logprobs", "$L eval run --text text", true, false},
    {"eval", "--output", "$L eval run --requests requests.jsonl", true, false},
    {"generate", "--output", "$L generate run --prompts prompts.txt --tokens 2", true, false},
    {"layout", "--svg", "$L layout $C", true, false},
    {"plan", "--svg", "$L plan $C --accelerators 1 --cluster $G/../../../clusters/cpu-2core.yaml",
     false, false},
    {"plan", "--trace", "$L plan $C --accelerators 1 --cluster $G/../../../clusters/cpu-2core.yaml",
     false, false},
    {"plan", "--apply", "$L plan $C --accelerators 1 --cluster $G/../../../clusters/cpu-2core.yaml",
     false, false},
    {"plan memory", "--svg", "$L plan memory $C", true, false},
    {"convert", "--out", "$L convert megatron -- --num-layers 2 --attention-dropout 0", true,
     false},
    {"bench machine", "--out", "$L bench machine --quick --threads 1", false, true},
    {"data detokenize", "--output", "$L data detokenize corpus_valid", true, false},
    {"data stats", "--svg", "$L data stats corpus_valid", true, false},
    {"plot", "--output", "$L plot run", true, false},
    {"report", "--output", "$L report run", false, false},
    {"data dedup", "--output", "$L data dedup --input requests.jsonl", true, false},
    {"data dedup", "--pairs",
     "$L data dedup --near 0.8 --output unique.jsonl --input requests.jsonl requests.jsonl", true,
     false},
    {"data filter", "--output", "$L data filter --rules words-min=1 --input requests.jsonl", true,
     false},
    {"data filter", "--explain",
     "$L data filter --rules words-min=9 --output good.jsonl --input requests.jsonl", true, false},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int run_setup(void **state)
{
    if (corpus_setup(state))
        return -1;
    return shell("$L train $C train.steps=2 train.out=run && printf 'in the beginning' > text && "
                 "printf '%s\\n' 'in the' so > prompts.txt && "
                 "echo '{\"text\": \"a text\"}' > requests.jsonl");
}

/* The row's command, writing to `to`. A `--` is behind the options. */
static const char *command(const struct row *row, const char *to)
{
    static char line[600];
    const char *rest = strstr(row->line, " -- ");
    int head = rest ? (int)(rest - row->line) : (int)strlen(row->line);
    snprintf(line, sizeof line, "%.*s %s %s%s", head, row->line, row->option, to, rest ? rest : "");
    return line;
}

static void expect_wrote(const struct row *row, const char *to, int code)
{
    char line[1200];
    snprintf(line, sizeof line, "%s > printed", command(row, to));
    expect(line, code, "");
}

static mode_t kind_of(const char *name)
{
    struct stat there;
    assert_int_equal(lstat(at(name), &there), 0);
    return there.st_mode & S_IFMT;
}

static void check_row(const struct row *row)
{
    char line[1200];
    const char *same = row->twice ? "cmp" : "test -s plain && test -s";
    print_message("%s %s\n", row->page, row->option);
    expect("rm -rf plain link target pipe got none full && echo old > target && "
           "ln -s target link && ln -s /dev/full full && mkfifo pipe",
           0, "");
    if (!row->slow) {
        expect_wrote(row, "plain", 0);
        expect_wrote(row, "link", 0);
        assert_int_equal(kind_of("link"), S_IFLNK);
        snprintf(line, sizeof line, "%s %s target", same, row->twice ? "plain" : "");
        expect(line, 0, "");
        expect_wrote(row, "full", ls_exit_code(LS_ENOSPC));
        assert_int_equal(kind_of("full"), S_IFLNK);
        expect_wrote(row, "-", 0);
        assert_false(exists("-"));
        expect_wrote(row, "none/file", ls_exit_code(LS_EIO));
    }
    /* The reader gets its end if the command never opened the pipe. */
    snprintf(line, sizeof line,
             "{ cat pipe > got & } && { %s > printed; code=$?; exec 9<>pipe 9>&-; wait; } && "
             "test -s got && exit $code",
             command(row, "pipe"));
    expect(line, 0, "");
    assert_int_equal(kind_of("pipe"), S_IFIFO);
    if (row->twice)
        expect("cmp plain got", 0, "");
}

CASE(test_what_stands_there_stays_what_it_is)
{
    for (int i = 0; i < ROWS; i++)
        if (!rows[i].slow || check_all())
            check_row(&rows[i]);
}

/* The pages list the options: each that names a file to write is above. */
CASE(test_every_option_is_tried)
{
    static const char *const others[] = {"data merge --output", "data prepare --output",
                                         "data split --output", "data train-tokenizer --output",
                                         "export --out",        "import --out",
                                         "ckpt average --out",  "ckpt reshard --out"};
    int listed = 0, tried = ROWS + (int)(sizeof others / sizeof *others);
    expect("$L help | sed -nE '/^Commands:/,/^$/s/^  ((data |bench |ckpt |plan )?[a-z0-9-]+) "
           ".*/\\1/p' | "
           "while read -r page; do $L help $page | sed -nE -e "
           "\"s/^  --(out|output|svg|apply|trace|logprobs) [A-Z]+([|]FOLDER.)?$/$page --\\1/p\" "
           "-e \"s/^  --(pairs|explain) FILE$/$page --\\1/p\"; done",
           0, "--out");
    for (const char *at = output; (at = strchr(at, '\n')); at++)
        listed++;
    print_message("%d options that write, %d tried here, %d elsewhere\n", listed, ROWS,
                  tried - ROWS);
    assert_int_equal(listed, tried);
}

/* Ctrl-C, or a closed terminal, of which shell and system both may tell, while a job reads a pipe:
 * it stops, and leaves nothing. It is asked once its output is there under a temporary name; the
 * lines come after that, and the end of the pipe with the shell's. Under nohup it goes on. */
CASE(test_a_signal_leaves_nothing)
{
    static const struct {
        const char *before, *signals;
        bool stops;
    } lines[] = {{"", "INT", true},
                 {"", "TERM", true},
                 {"", "HUP HUP", true},
                 {"trap '' HUP; ", "HUP", false}};
    signal(SIGHUP, SIG_DFL); /* whoever runs the tests may have nohup in front */
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "rm -f p.jsonl left.jsonl; mkfifo p.jsonl; exec 8<>p.jsonl; %s"
                 "$L data filter --rules words-min=1 --input p.jsonl --output left.jsonl 8>&- & "
                 "pid=$!; until ls left.jsonl.tmp-*; do :; done; "
                 "for s in %s; do kill -$s $pid; done; "
                 "cat requests.jsonl >&8; exec 8>&-; wait $pid",
                 lines[i].before, lines[i].signals);
        expect(line, lines[i].stops ? ls_exit_code(LS_ESTOPPED) : 0,
               lines[i].stops ? "stopped by a signal" : "");
        expect("ls left.jsonl.tmp-*", 2, "");
        expect("ls left.jsonl", lines[i].stops ? 2 : 0, "");
    }
}

/* What a process that was killed left of the same output goes; it is none of this host, for its id
 * is above the kernel's greatest. */
CASE(test_what_a_kill_left_goes)
{
    static const char *const lines[] = {
        "left_train.bin: $L data prepare --tokenizer byte --output left text",
        "left_train.idx: $L data prepare --tokenizer byte --output left text",
        "two.bin: $L data merge corpus_train corpus_valid --output two",
        "half_1.bin: $L data split two --parts 0.5,0.5 --output half",
        "two.jsonl: $L data detokenize two --output two.jsonl",
        "cut_1.jsonl: $L data split two.jsonl --parts 0.5,0.5 --output cut",
        "two.pack: $L data pack two --sequence 64",
        "scores.jsonl: $L eval run --requests requests.jsonl --output scores.jsonl",
        "good.jsonl: $L data filter --rules words-min=1 --input requests.jsonl --output good.jsonl",
        "one: $L ckpt reshard run --out one",
        "hf: $L export run --out hf",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *line = strchr(lines[i], ':');
        char words[512];
        snprintf(words, sizeof words, "touch %.*s.tmp-4194305 && %s && ! ls -d *.tmp-4194305",
                 (int)(line - lines[i]), lines[i], line + 1);
        expect(words, 0, "");
    }
    expect("mkdir words && touch words/tokenizer.json.tmp-4194305 && $L data train-tokenizer "
           "--input text --vocab 270 --output words && ! ls words/*.tmp-4194305",
           0, "");
}

/* A store is several files: links among them stay, and nothing else than a file is replaced. */
CASE(test_the_files_of_a_store)
{
    expect("mkdir far && ln -s far/a.bin s_train.bin && ln -s far/a.idx s_train.idx && "
           "ln -s far/t s.tokenizer && $L data prepare --tokenizer byte --output s text && "
           "$L data prepare --tokenizer byte --output t text && "
           "cmp far/a.bin t_train.bin && cmp far/a.idx t_train.idx && cmp far/t t.tokenizer",
           0, "");
    assert_int_equal(kind_of("s_train.bin"), S_IFLNK);
    assert_int_equal(kind_of("s_train.idx"), S_IFLNK);
    assert_int_equal(kind_of("s.tokenizer"), S_IFLNK);
    expect("mkfifo p_train.bin && $L data prepare --tokenizer byte --output p text",
           ls_exit_code(LS_EIO), "p_train.bin: expected a file, found a pipe or a device");
    assert_int_equal(kind_of("p_train.bin"), S_IFIFO);
    expect("mkdir t_valid.bin.d && rm t_valid.bin && mv t_valid.bin.d t_valid.bin && "
           "cp t_train.idx kept && $L data prepare --tokenizer byte --output t text",
           ls_exit_code(LS_EIO), "t_valid.bin: expected a file, found a folder");
    expect("cmp t_train.idx kept", 0, "");
    expect("$L data stats t_train --svg t_train.idx", ls_exit_code(LS_EINVAL), "is the output");
    expect("cmp t_train.idx kept", 0, "");
}

/* The two stores, and not one that has the name of the output. */
CASE(test_what_was_prepared_is_packed)
{
    expect("for file in bin idx; do cp corpus_train.$file v.$file; done && "
           "$L data prepare --tokenizer byte --output v text --pack-sequence 32 && "
           "ls v_train.pack v_valid.pack && ! ls v.pack",
           0, "");
}

/* Who reads standard output goes away: a run goes on, and it is no failure, whatever is written. */
CASE(test_a_reader_that_leaves)
{
    expect("{ $L train $C train.steps=3 train.out=left; echo code $? >&2; } | true; "
           "tail -n 1 left/metrics.jsonl",
           0, "code 0\n");
    assert_null(strstr(output, "cannot"));
    assert_non_null(strstr(output, "\"step\": 3, \"event\": \"end\""));
    /* A page is more than a pipe holds. */
    expect("{ $L report left --output -; echo code $? >&2; } | true", 0, "code 0\n");
    assert_null(strstr(output, "cannot"));
}

/* What is printed where a standard stream is closed goes into no file that is being written. */
CASE(test_closed_streams)
{
    static const char *const closed[] = {"2>&-", "<&- 2>&-", "<&- >&- 2>&-"};
    expect("for i in 1 2 3; do echo '{\"text\": \"abc\"}'; echo bad; done > bad.jsonl", 0, "");
    expect("$L data prepare --input bad.jsonl --output open --tokenizer byte --validation 0 "
           "--on-error skip",
           0, "3 documents");
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        char line[300];
        snprintf(line, sizeof line,
                 "$L data prepare --input bad.jsonl --output shut --tokenizer byte --validation 0 "
                 "--on-error skip %s; for f in bin idx; do cmp open_train.$f shut_train.$f; done",
                 closed[i]);
        expect(line, 0, "");
        assert_null(strstr(output, "differ"));
    }
    expect("$L help >&-", ls_exit_code(LS_EIO), "cannot write the output");
}

SUITE_MAIN(run_setup, scratch_teardown)

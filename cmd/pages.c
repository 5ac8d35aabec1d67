/* The manual: every sub-command, its arguments and options. */
#include "cmd.h"

#include <lockstep/compare/report.h>
#include <lockstep/trace/picture.h>

#include <string.h>

#define OPTIONS(name) static const struct cmd_option name[]
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, NULL                                                                           \
    }

OPTIONS(none) = {END};
OPTIONS(train_options) = {
    {"--dry-run", NULL, "check configuration, layout and data, show the memory plan, and stop"},
    {"--help-config", NULL, "list every configuration key with its default, and exit"},
    END};
OPTIONS(launch_options) = {
    {"--ranks", "N", "start N ranks on this machine (default: as many as the layout has)"},
    {"--hosts", "FILE", "start the ranks on the hosts of this file, lines such as `node1 slots=8`"},
    END};
#define STEP                                                                                       \
    {                                                                                              \
        "--step", "STEP", "take the checkpoint of this step, `best` or `latest` (the default)"     \
    }
#define TOKENIZER_KEY "data.tokenizer names the tokenizer of a model that came without one."
/* How texts become tokens. */
#define SPECIAL_TOKENS                                                                             \
    {"--no-special-tokens", NULL,                                                                  \
     "do not put the tokens around a text that the tokenizer's files say, such as <s>"},           \
    {                                                                                              \
        "--special-tokens", "ids|text",                                                            \
            "special tokens that are written in a text are tokens (the default), or text"          \
    }
OPTIONS(eval_options) = {
    STEP,
    {"--samples", "N", "evaluate on at most N sequences, or examples (default: all)"},
    {"--text", "FILE", "evaluate on the text of a file"},
    SPECIAL_TOKENS,
    {"--ids", "FILE",
     "evaluate on the tokens of a file's JSON lines, each with `id`: what --logprobs writes"},
    {"--logprobs", "FILE",
     "write a JSON line for each token, with its log-probability in decimal and as the bits of "
     "the float"},
    {"--requests", "FILE",
     "score the texts of a file's JSON lines: {\"context\", "
     "\"continuation\"}, {\"text\"} or {\"tokens\", \"prompt_tokens\"}"},
    {"--output", "FILE", "where --requests' results go (default: printed)"},
    {"--truncate", NULL, "drop the first tokens of a request that is too long"},
    {"--choices", "FILE", "answer multiple choices in llm.c's format of HellaSwag"},
    {"--quantize", "none|int8|int8-weights",
     "quantize the blocks' matrices: int8 with their inputs, int8-weights alone (default: none)"},
    {"--threads", "N", "threads of each rank (default: cores / ranks)"},
    END};
#define TEMPLATE_DATE                                                                              \
    {                                                                                              \
        "--template-date", "DAY",                                                                  \
            "the day that the template's strftime_now gives, such as 2026-11-25 (default: none; "  \
            "a template "                                                                          \
            "that needs one is refused)"                                                           \
    }
OPTIONS(generate_options) = {
    STEP,
    {"--prompt", "TEXT", "what to continue (default: a new line)"},
    SPECIAL_TOKENS,
    {"--prompts", "FILE",
     "continue many prompts: one per line, or JSON lines in a file named .jsonl, with `prompt` "
     "and optionally `max_tokens` and `stop`"},
    {"--chat", NULL,
     "answer instead: --prompt is the user's message, --prompts a file of conversations, JSON "
     "lines with `messages`; without either, each line of standard input is a turn. The chat "
     "template is that of the tokenizer's folder"},
    {"--chat-template", "FILE|NAME",
     "use this chat template instead of the folder's: a file, or the "
     "name of another template of the folder, such as rag"},
    TEMPLATE_DATE,
    {"--system", "TEXT", "with --chat: the system's message, before the first turn"},
    {"--output", "FILE", "where JSON lines go (default: printed)"},
    {"--samples", "N", "continue each prompt of the file N times (default: 1)"},
    {"--batch", "N", "process N texts at once (default: 16)"},
    {"--cache-tokens", "N",
     "memory for the keys and values of N tokens at most, all texts together (default: what the "
     "batch needs, if that is free)"},
    {"--logprobs", NULL,
     "give each token's log-probability, in decimal and as the bits of the float; with "
     "--prompt, as a JSON line for each token"},
    {"--stop", "TEXT", "end a text before TEXT"},
    {"--eos", "IDS",
     "tokens that end a text, with commas between them, or `none` (default: eos_token_id of the "
     "model's folder, or the one that ends a document)"},
    {"--truncate", NULL,
     "drop the first tokens of a prompt that, with --tokens, exceeds the context; if --tokens is "
     "not given, the prompt keeps at least half of the context"},
    {"--tokens", "N",
     "generate at most N tokens (default: those of the folder, or 128; with --chat 1024)"},
    {"--temperature", "T",
     "divide the logits by T; with 0 always take the likeliest token (default: 0.8)"},
    {"--top-k", "K", "draw from the K likeliest tokens; 0 from all (default: 0)"},
    {"--top-p", "P", "draw from the likeliest tokens with total probability P (default: 1)"},
    {"--seed", "N", "seed of the draw; the same seed gives the same text (default: 1234)"},
    {"--quantize", "none|int8|int8-weights",
     "quantize the blocks' matrices: int8 with their inputs, int8-weights alone (default: none)"},
    {"--threads", "N", "threads of each rank (default: cores / ranks)"},
    END};
OPTIONS(prepare_options) = {
    {"--input", "PATH...",
     "text, JSONL (.gz and .zst too), or folders of them; - is standard input, jsonl:- too"},
    {"--output", "PREFIX", "write PREFIX_train.bin and .idx, PREFIX_valid.bin and .idx"},
    {"--tokenizer", "SPEC",
     "`byte`, a folder with tokenizer.json or with vocab.json and "
     "merges.txt, or another tokenizer (doc/data.md)"},
    {"--validation", "SHARE", "share of the documents held out for validation (default: 0.1)"},
    {"--pairs", NULL,
     "each JSONL object is an example: {\"prompt\": ..., \"completion\": ...}; only the "
     "completion counts"},
    {"--chat", NULL,
     "each JSONL object is a conversation: {\"messages\": [...]}; only the assistant's turns "
     "count. The tokenizer's chat template turns it into text"},
    {"--chat-template", "FILE|NAME",
     "use this chat template instead of the tokenizer's: a file, or "
     "the name of another template of its folder, such as rag"},
    TEMPLATE_DATE,
    {"--json-keys", "KEY", "the key of a JSONL object that holds its text (default: text)"},
    {"--weights", "KEY",
     "weigh the loss of each token by the number under this key of its JSONL object, 1 if it has "
     "none, or null"},
    {"--on-error", "stop|skip",
     "stop at a bad JSONL record (the default), or skip it and list it in PREFIX.skipped.txt"},
    {"--no-special-tokens", NULL,
     "do not put the tokens around a document that the tokenizer's files say, such as <s>"},
    {"--append-eod", NULL, "end each document with the end-of-document token (the default)"},
    {"--no-append-eod", NULL, "do not end documents with it"},
    {"--pack-sequence", "T",
     "then pack the stores into sequences of T tokens, as `lockstep data pack` does"},
    {"--workers", "N", "tokenise with N threads (default: all cores)"},
    END};
OPTIONS(inspect_options) = {{"--tokens", "N", "show the first N tokens (default: 64)"},
                            {"--decode", "SPEC", "show them as text, decoded by this tokenizer"},
                            END};
OPTIONS(order_options) = {{"--from", "STEP", "begin with this step (default: 1)"},
                          {"--steps", "N", "show so many steps (default: 1)"},
                          END};
OPTIONS(layout_options) = {
    {"--check", NULL, "prove that all ranks' collectives and messages match, and show only that"},
    {"--svg", "FILE", "draw the pipeline's schedule, ranks over time, as an SVG picture"},
    END};
OPTIONS(plan_options) = {
    {"--cluster", "FILE",
     "plan for this cluster (clusters/ has examples; default: this machine, which is measured)"},
    {"--goal", "time|cost|memory", "what to minimize (default: time)"},
    {"--within", "TIME",
     "only layouts on which the training ends within that time, such as 30d or 12h"},
    {"--tokens", "N", "tokens of the whole training (default: those of train.steps)"},
    {"--top", "N", "show N layouts (default: 10)"},
    {"--accelerators", "N", "use N of the cluster's accelerators (default: all)"},
    {"--seconds", "S|unlimited",
     "search for at most S seconds, or until the best is proven optimal (default: 8; 50 for "
     "more than 2,048 accelerators; unlimited with --forecasts)"},
    {"--forecasts", "N",
     "forecast at most N layouts: the plan is then the same on a slow machine and a fast one"},
    {"--explain", "KEYS",
     "show only layouts with these keys, such as pp=8,tp=8, and compare the best with the "
     "textbook"},
    {"--what-if", "FIGURE=VALUE",
     "forecast with another figure of the cluster, such as link.inter=100Gbps; several have "
     "commas between"},
    {"--svg", "FILE", "draw a step of the best layout, ranks over time, as an SVG picture"},
    {"--trace", "FILE", "write that step as a trace for Perfetto"},
    {"--apply", "FILE", "write the configuration with the best layout's keys"},
    {"--lesson", "memory|bubble|allreduce|3d|scaling",
     "print an exercise with formula, numbers and answer instead of a plan; takes --svg and "
     "--cluster"},
    {"--layout", NULL, "do not search: forecast the configuration's own layout"},
    {"--json", NULL, "with --layout: print one JSON object instead"},
    END};
OPTIONS(export_options) = {
    {"--format", "FORMAT", "hf (default), peft (only the adapters), llmc or gguf"},
    {"--dtype", "TYPE", "round weights to fp32 (default), bf16 or fp16"},
    {"--quantize", "none|int8",
     "with --format gguf, instead of --dtype: matrices in Q8_0, the rest in fp32"},
    {"--out", "PATH", "write to this folder or file, which must not exist"},
    {"--step", "STEP", "a step, latest or best (default: the newest checkpoint)"},
    {"--shard-mb", "N", "megabytes of a file of weights (default: 5000)"},
    END};
OPTIONS(import_options) = {{"--out", "RUN", "make this run directory, which must not exist"}, END};
OPTIONS(convert_options) = {
    {"--ranks", "N", "number of all ranks of the job, if the file does not give it"},
    {"--model", "PRESET", "take the model's shape from this preset, such as gpt2-124m"},
    {"--allow-loss", NULL,
     "leave out keys that change results and have no counterpart, and name each"},
    {"--out", "FILE", "write to FILE, complete or not at all (default: standard output)"},
    {"--keys", NULL, "list every known key and its translation, as Markdown"},
    END};
OPTIONS(bench_plan_options) = {
    {"--cluster", "FILE", "the measured machine, as a cluster file"},
    {"--rehearse", "TIMES", "let ranks sleep instead of computing, as on cores TIMES times slower"},
    {"--steps", "N", "run N steps after two warm-up steps, and take the median (default: 7)"},
    END};
OPTIONS(status_options) = {{"--json", NULL,
                            "print one JSON object instead: times in seconds since "
                            "1970, null for what is not known"},
                           END};
OPTIONS(plan_memory_options) = {
    {"--rank", "N", "show rank N (default: one of each kind of ranks)"},
    {"--json", NULL, "print one JSON object instead of tables"},
    {"--svg", "FILE",
     "draw what is in use during a step as an SVG picture, of the rank that takes most"},
    {"--explain", NULL, "compare the plan with the textbook's figures, and explain differences"},
    END};
OPTIONS(machine_options) = {
    {"--out", "FILE", "write the measurements as a cluster file"},
    {"--quick", NULL, "measure a coarser grid, in some seconds"},
    {"--all", NULL, "measure fp16 too"},
    {"--bound", NULL,
     "measure only the cores that this process is bound to, by taskset or mpirun (default: all "
     "of the host)"},
    {"--disk", "FOLDER", "measure the disk that holds this folder too (default: none)"},
    {"--check", "CONFIG", "compare the sum of the works of a step with the step itself"},
    {"--machine", "FILE", "with --check: show the times of this file too"},
    {"--threads", "LIST", "measure only these numbers of threads of a rank, such as 1,2"},
    END};
OPTIONS(plot_options) = {
    {"--output", "FILE",
     "write to FILE (default: loss.svg in the run's directory, or in the current folder for "
     "several runs)"},
    {"--log", NULL, "draw the loss on a logarithmic scale"},
    END};
OPTIONS(profile_options) = {
    {"--cluster", "FILE",
     "compare with the forecast for this cluster file, such as that of `lockstep bench machine "
     "--out FILE` (default: the run's train.plan)"},
    END};
OPTIONS(report_options) = {
    {"--output", "FILE",
     "write to FILE (default: report.html in the run's directory, or in the current folder for "
     "several runs)"},
    END};
OPTIONS(verify_options) = {
    {"--layouts", "N", "try N layouts (default: 50)"},
    {"--ranks", "N", "use at most N ranks (default: 8)"},
    {"--steps", "N", "train N steps in each (default: 3)"},
    {"--seed", "N", "seed of the draw; another seed draws other layouts (default: 1)"},
    {"--verbose", NULL, "say how many layouts had each setting"},
    END};
OPTIONS(diff_options) = {
    {"--force", NULL,
     "compare runs of different recipes too, from the start, although they will differ"},
    {"--no-rerun", NULL, "compare only the records, and repeat nothing"},
    END};
OPTIONS(ckpt_inspect_options) = {
    STEP,
    {"--tensors", NULL,
     "list every tensor with its type, its shape and, if it has another one, its "
     "name in the files"},
    END};
OPTIONS(ckpt_average_options) = {
    {"--weights", "LIST", "the weight of each checkpoint, such as 3,1 (default: 1 each)"},
    {"--out", "RUN", "make this run directory, which must not exist"},
    END};
OPTIONS(ckpt_reshard_options) = {
    STEP, {"--out", "RUN", "make this run directory, which must not exist"}, END};
OPTIONS(audit_options) = {
    {"--steps", "A..B", "audit steps A to B (default: those after the newest checkpoint but one)"},
    END};
OPTIONS(help_options) = {
    {"--list", NULL, "list the names of all pages, one per line, as --man takes them"},
    {"--man", "PAGE", "print the page as troff, for man(1); `lockstep` is the page of the program"},
    {"--config", NULL, "list every configuration key with its default"},
    {"--config-markdown", NULL, "the same as Markdown (doc/configuration.md)"},
    {"--exit-codes", NULL, "list the exit codes as Markdown (doc/exit-codes.md)"},
    END};

static const struct cmd_page pages[] = {
    {"train", "[CONFIG.yaml] [key=value]...", "train a model",
     "Trains what the configuration describes and writes a run directory: the resolved "
     "config.yaml, metrics.jsonl (one object per step), TensorBoard events and checkpoints.\n\n"
     "The ranks of the layout (the keys of `parallel`) share the work. They are threads of this "
     "process, unless mpirun or srun started the program: then each process is one rank. However "
     "the work is cut - pipeline, data, context and tensor parallel, ZeRO, micro-batches, threads, "
     "transport - the losses and the final state are the same, bit for bit.\n\nSIGINT, SIGTERM, "
     "SIGUSR1 and SIGHUP (a closed terminal, unless nohup ignores it) finish the step, save a "
     "checkpoint and exit; a second SIGINT or SIGTERM ends the program at once. train.resume=auto "
     "resumes from the newest checkpoint, and the result is "
     "that of a run that was never stopped.\n\nEnvironment: a launcher is known by "
     "OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK, PMI_SIZE, or SLURM_PROCID with "
     "SLURM_STEP_NUM_TASKS above 1. comm.transport=thread or mpi overrides them.",
     train_options, cmd_train, 0,
     "lockstep train configs/demo.yaml\n"
     "lockstep train configs/demo.yaml parallel.dp=4 train.steps=500 train.resume=auto\n"
     "mpirun -n 4 lockstep train configs/demo.yaml parallel.dp=4\n"},
    {"launch", "[CONFIG.yaml] [key=value]...", "train over MPI, and go on when ranks or hosts fail",
     "Starts `lockstep train` with these words under mpirun, or under srun inside a Slurm "
     "allocation, and watches it. If a rank dies or freezes, or a host does not answer, it starts "
     "the job again from the newest snapshot or checkpoint: in the same layout if there are ranks, "
     "otherwise in the best one for those that are left. When a host comes back, it returns to the "
     "larger layout. The bits are those of a run that lost nothing.\n\nA full disk, a loss that is "
     "not finite, and a wrong configuration end the job at once. A failure that repeats without "
     "progress ends it after launch.retries. SIGINT, SIGTERM, SIGUSR1 and SIGHUP are handed on: "
     "the job saves and ends; a second signal other than SIGHUP ends it at once. Before "
     "launch.deadline_s is over, or the "
     "time of the allocation, the job saves and ends too. What happened is in RUN/events.jsonl; "
     "`lockstep status` sums it up. doc/launch.md explains each kind of failure.",
     launch_options, cmd_launch, 0,
     "lockstep launch --ranks 4 configs/demo.yaml parallel.dp=4 train.save_every=50\n"
     "lockstep launch --hosts hosts.txt run.yaml\n"},
    {"status", "RUN", "show where a run stands",
     "Reads the records of a run's folder, and prints whether it runs, its last step and loss, its "
     "newest checkpoint, its layout, and the failures that `lockstep launch` has seen. It may be "
     "used while the run goes on.",
     status_options, cmd_status, 1, "lockstep status runs/demo\n"},
    {"members", "RUN [WORKERS]", "show which workers of a run take part, or ask for others",
     "Of a run with async.mode = diloco. Prints from which outer step on which workers took part. "
     "WORKERS asks for others, by their numbers (0-2,5) or as `all`: the run takes it up when its "
     "workers meet, and they train from the next interval on. Who leaves has no part in the mean "
     "and consumes no samples; who joins begins with the global parameters. The run may go on, or "
     "start later.",
     none, cmd_members, 2, "lockstep members runs/diloco 0-2\n"},
    {"layout", "[CONFIG.yaml] [key=value]...", "show how a configuration is cut over ranks",
     "Trains nothing. Prints the ranks and their coordinates, the groups, what a rank holds of "
     "each tensor, the stages and their share of the work, the pipeline's schedule with its idle "
     "share, the bytes that a rank sends in a step on each axis, and its memory. If the recipe "
     "does not admit a layout, the error gives the reason and the nearest layout that "
     "works.\n\n--check derives every rank's sequence of collectives and messages from layout "
     "and schedule. It proves that the ranks of each group agree and that every message is "
     "received in order, so such a run cannot hang because two ranks do not match.",
     layout_options, cmd_layout, 0,
     "lockstep layout configs/gpt2-124m.yaml parallel.pp=2 parallel.tp=2 --svg schedule.svg\n"
     "lockstep layout --check configs/llama-405b-16k.yaml\n"},
    {"plan", "[CONFIG.yaml] [key=value]...", "find the best layouts of a recipe on a cluster",
     "Trains nothing. Examines every layout that the recipe admits on the cluster: stages, "
     "data, context and tensor parallel, ZeRO, schedule, chunks, micro-batch, recomputation, "
     "offload. For each it finds a bound of the step's time, and the memory to the byte. A "
     "layout that may be among the best is simulated: the trainer itself records each rank's "
     "operations, and the cluster's rates time them. No layout changes a bit of the result, so "
     "you can take the fastest one.\n\nLayout keys on the command line are fixed; those in the "
     "file are ignored, but memory.device_budget. doc/planning.md explains the figures.\n\n"
     "`lockstep plan memory` shows what each rank keeps in memory, and when it keeps most.",
     plan_options, cmd_plan, 0,
     "lockstep plan configs/llama-405b.yaml --cluster clusters/h100-2048.yaml --tokens 15e12\n"
     "lockstep plan configs/llama-8b.yaml --cluster clusters/h100-2048.yaml --accelerators 64 "
     "--explain tp=2\n"
     "lockstep plan --lesson bubble --svg bubble.svg\n"},
    {"plan memory", "[CONFIG.yaml] [key=value]...", "show what each rank keeps in memory, and when",
     "Trains nothing, and does not allocate the memory. Prints, for each kind of rank, the "
     "memory that a run allocates, to the byte: parameters, gradients, optimizer states, "
     "activations that are kept for the backward, the workspace of the current layer, and "
     "communication buffers. Then it names the moment of a step at which most memory is in "
     "use: the layer, the part of its forward or backward, and the micro-batch. If this "
     "machine has less memory than the ranks take, it says which changes of the layout would "
     "be enough, the cheapest first; --json has the answer as fits_here.\n\n--explain compares "
     "it with the figures of papers (16 bytes per parameter, ZeRO 1 to 3, the activations of "
     "Korthikanti et al.) and explains differences.",
     plan_memory_options, cmd_plan_memory, 0,
     "lockstep plan memory configs/gpt2-124m.yaml parallel.dp=4 parallel.zero=2\n"
     "lockstep plan memory configs/llama-405b-16k.yaml --svg memory.svg\n"
     "lockstep plan memory configs/llama-8b.yaml --explain\n"},
    {"verify", "[CONFIG.yaml] [key=value]...", "prove that layouts of a recipe give the same bits",
     "Trains the configuration's recipe for a few steps on one rank, and then in layouts drawn "
     "at random from those that the recipe admits: pipeline, data, context and tensor parallel, "
     "ZeRO, schedules, micro-batches. Each must repeat the loss and the hash of the state after "
     "every step, bit for bit. The configuration's own layout comes first.\n\nRanks are threads "
     "of this process, and nothing is written. It needs the memory of the whole model and of "
     "every copy that a layout makes; layouts that do not fit are left out and counted.\n\nIf a "
     "layout differs, the first tensor that differs is named, and the exit code is 1.",
     verify_options, cmd_verify, 0,
     "lockstep verify configs/demo.yaml\n"
     "lockstep verify run.yaml parallel.tp=2 parallel.zero=3 --layouts 20 --ranks 16 --steps 5\n"},
    {"diff", "RUN_A RUN_B", "find where two runs of a recipe diverge",
     "Compares the losses and hashes that two run directories recorded. If they differ, both "
     "runs are repeated, each in its own layout on thread ranks of this process, from the "
     "newest checkpoint at which they are equal (or from the start). The first step and the "
     "first tensor whose bits differ are named: forward or backward, layer, stage, or the "
     "update. If the records differ but the repetitions do not, a machine is at fault, and the "
     "run that is not reproduced is named.\n\nNothing is written. The exit code is 0 if the "
     "runs are equal as far as both go, and 1 if they differ.",
     diff_options, cmd_diff, 2, "lockstep diff runs/a runs/b\n"},
    {"audit", "RUN [key=value...]", "compute steps of a run again, and compare with its records",
     "Checks the chain of the records, goes to the newest checkpoint before the first step (or "
     "to the start), computes the steps again on this machine, and compares loss, gradient norm "
     "and hash of each with metrics.jsonl, bit for bit. The keys give the layout, whatever layout "
     "trained the run; without them it is another one than the run's, drawn the same each time. "
     "data.train names the run's data if they lie elsewhere now.\n\nIf a step differs, it is "
     "computed in the run's own layout too, which tells whether the record or a layout is wrong; "
     "of two layouts that differ the first tensor is named.\n\nRanks are threads of this "
     "process, and nothing is written. The exit code is 0 if all that was recorded is equal, and "
     "1 if anything differs.",
     audit_options, cmd_audit, 0,
     "lockstep audit runs/demo\nlockstep audit runs/demo --steps 1000..1200 parallel.tp=2\n"},
    {"replay", "RUN [key=value...]", "compute a whole run again, and compare with its records",
     "An audit of all that a run recorded, from its beginning to its last step. A run that went on "
     "from the checkpoint of another one begins there or, if that is gone, at the oldest "
     "checkpoint of its own.\n\nWith async.order=clock the order in which gradients arrived is "
     "read from RUN/arrivals. It is the only input of such a run that the recipe does not give, so "
     "the same steps follow from it on any number of ranks.\n\nThe keys, the output and the exit "
     "code are those of `lockstep audit`.",
     none, cmd_replay, 0,
     "lockstep replay runs/demo\nlockstep replay runs/server parallel.workers=2\n"},
    {"ckpt", "verify|inspect|reshard|average ...", "work on checkpoints",
     "`lockstep ckpt verify` reads every byte of checkpoints and compares, `ckpt inspect` shows "
     "what one holds, `ckpt reshard` writes one as another layout would, and `ckpt average` makes "
     "a run of the mean of several.",
     none, NULL, 0, NULL},
    {"ckpt verify", "PATH...", "check every byte of checkpoints",
     "Reads all checkpoints of each run, those of its workers too, or the checkpoint that PATH is, "
     "and compares every file with its size and its digest. Each checkpoint is one line, a damaged "
     "one with the file that is. The exit code is 1 if any is damaged. Nothing is written, and a "
     "run may train meanwhile.",
     none, cmd_ckpt_verify, 0, "lockstep ckpt verify runs/demo\n"},
    {"ckpt inspect", "PATH", "show what a checkpoint holds",
     "Prints step, tokens, hash of the state, digest of the recipe, the layout and the build that "
     "wrote it, and its tensors: of the newest checkpoint of a run, of the one that --step names, "
     "or of the checkpoint that PATH is. Digests of values are not compared: `ckpt verify` does "
     "that.",
     ckpt_inspect_options, cmd_ckpt_inspect, 1,
     "lockstep ckpt inspect runs/demo\nlockstep ckpt inspect runs/demo --step 300 --tensors\n"},
    {"ckpt reshard", "PATH [key=value...] --out RUN", "write a checkpoint as another layout would",
     "Makes a run directory with one checkpoint: the newest of the run PATH, the one that --step "
     "names, or the checkpoint that PATH is. Its files are those that the ranks of the layout "
     "would have written; state, step and hash are the same. The keys give the layout; without "
     "them it is one rank, so each part is one file. Any layout resumes from any checkpoint: "
     "this is for programs that read the files, and for reading less on each host.\n\nEvery byte "
     "is verified as it is read, and each rank has one tensor at a time in memory. The output "
     "appears complete or not at all.",
     ckpt_reshard_options, cmd_ckpt_reshard, 0,
     "lockstep ckpt reshard runs/demo --out runs/one-file\n"
     "lockstep ckpt reshard runs/demo --step 300 parallel.dp=4 parallel.zero=1 --out runs/four\n"},
    {"ckpt average", "PATH PATH... --out RUN", "make a run of the mean of several checkpoints",
     "Makes a run directory with one checkpoint of step 0, as `lockstep import` does: its "
     "parameters are the mean of those of the checkpoints, and there is no optimizer state. "
     "`eval`, `generate`, `export` and model.from take it. Each PATH is a run, of which the newest "
     "counts, or a checkpoint. If two are not of one model, the error names the first key that "
     "differs.\n\nA mean is the sum of weight times value over the sum of the weights. Sums are "
     "taken in double by fma, in the order of the paths, and rounded to float once at the end. "
     "Every byte is verified, and of each checkpoint one tensor at a time is in memory.",
     ckpt_average_options, cmd_ckpt_average, 0,
     "lockstep ckpt average runs/demo/checkpoints/step-00000200 "
     "runs/demo/checkpoints/step-00000300 --out runs/mean\n"
     "lockstep ckpt average runs/a runs/b --weights 3,1 --out runs/soup\n"},
    {"eval", "RUN [DATA] [key=value...]", "evaluate a trained model",
     "Loads the newest checkpoint of a run directory, or the one that RUN or --step names, and "
     "prints its loss on DATA (a token store, or an llm.c token file), or on the run's own "
     "data.valid: in nats and bits per token, and in bits per byte of text. --text, --ids, "
     "--requests and --choices evaluate on something else.\n\nThe keys give the layout "
     "(parallel.tp, pp, dp, cp, sp, cp_method, tp_overlap, split; numerics.isa; "
     "comm.*), whatever layout trained the run; without them it is one rank. " TOKENIZER_KEY
     " Each rank loads its part of the model. Ranks are threads of this process, or processes "
     "under mpirun or srun. The loss is the same, bit for bit.",
     eval_options, cmd_eval, 0,
     "lockstep eval runs/demo\nlockstep eval runs/demo corpus_valid --samples 256\n"
     "lockstep eval runs/demo --step 300\n"
     "lockstep eval runs/demo --text letter.txt --logprobs letter.jsonl\n"
     "lockstep eval runs/demo --requests questions.jsonl --output answers.jsonl\n"
     "lockstep eval runs/demo parallel.tp=2 parallel.pp=2\n"
     "lockstep eval runs/demo/checkpoints/step-00000300\n"},
    {"generate", "RUN [key=value...]", "continue a text with a trained model",
     "Loads the newest checkpoint of a run directory, or the one that RUN or --step names, and "
     "prints the prompt's continuation. With --prompts, it prints a JSON line for each prompt, in "
     "their order. The batch size does not change the text.\n\nA log-probability has the bits of "
     "the forward of training, which `lockstep eval --ids` and `--requests` compute again.\n\nIf a "
     "model does not fit one rank, cut it with parallel.tp and parallel.pp (and parallel.split, "
     "comm.*), whatever layout trained it. With parallel.dp, copies of the model share the "
     "prompts. " TOKENIZER_KEY " Ranks are threads of this process, or processes under mpirun or "
     "srun. The text is the same.",
     generate_options, cmd_generate, 0,
     "lockstep generate runs/demo --prompt \"In the beginning\" --tokens 200 --top-p 0.9\n"
     "lockstep generate runs/demo --prompt \"In the beginning\" parallel.tp=2 parallel.pp=2\n"
     "lockstep generate runs/demo --prompts questions.jsonl --stop Q: --output answers.jsonl\n"
     "lockstep generate models/qwen2.5 --chat\n"},
    {"convert", "deepspeed|megatron|torchtitan FILE|ARGUMENTS [key=value]...",
     "translate another trainer's configuration",
     "Reads DeepSpeed's JSON, Megatron-LM's arguments (as one text, behind --, or a shell script "
     "that gives them) or torchtitan's TOML, and prints a configuration of Lockstep. A comment "
     "after each key says where it comes from. At the end are the keys that were left out, and "
     "why. If the other trainer's default differs from that of Lockstep, it is written out.\n\n"
     "A key that changes results and has no counterpart is refused, as is an unknown key; each is "
     "named, with its line and the reason. --allow-loss leaves them out, and names them in "
     "the result and on standard error.\n\n"
     "key=value sets a key of Lockstep and wins over the file.",
     convert_options, cmd_convert, 0,
     "lockstep convert deepspeed ds_config.json --ranks 8 --model gpt2-124m --out run.yaml\n"
     "lockstep convert megatron pretrain.sh --ranks 64 --out run.yaml\n"
     "lockstep convert megatron -- --num-layers 12 --hidden-size 768 --num-attention-heads 12\n"
     "lockstep convert torchtitan llama3_8b.toml --ranks 8 --allow-loss\n"
     "lockstep convert deepspeed --keys\n"},
    {"import", "DIR --out RUN [key=value]...", "turn another program's model into a run",
     "DIR is a Hugging Face folder: config.json, and weights as safetensors, in one file or in "
     "shards with their index; or llm.c's model_*.bin; or a run. RUN becomes a directory with "
     "config.yaml, a checkpoint of step 0, and in hf/ the tokenizer's and other files that go "
     "with the model. `lockstep train RUN/config.yaml data.train=...` trains it further, and "
     "`eval`, `generate` and `export` take it. It appears complete or not at all.\n\nAn "
     "unknown family, feature or tensor is refused by name. An unknown key of config.json "
     "gives a warning.\n\nTo train without a copy, set model.from in a configuration: each "
     "rank then reads its part from DIR. key=value sets a key of RUN/config.yaml.",
     import_options, cmd_import, 0,
     "lockstep import ~/models/Qwen3-0.6B --out runs/qwen\n"
     "lockstep import gpt2_124M.bin --out runs/gpt2 numerics.precision=bf16\n"},
    {"export", "RUN|DIR --out PATH [--format F] [--dtype T]", "write a model for other programs",
     "hf makes a folder that transformers' from_pretrained loads as it is: config.json, weights as "
     "safetensors, and the tokenizer's and other files that came with the model. llmc makes an "
     "llm.c model_*.bin of a GPT-2; gguf a file for llama.cpp, with the tokenizer that came with "
     "the model. The padding of the vocabulary is removed. Adapters (lora.rank) are merged; peft "
     "writes a folder with only the adapters.\n\n--quantize int8 makes matrices Q8_0: 32 values of "
     "a row are int8 with one scale in fp16. A matrix whose rows are not whole blocks of 32 is "
     "fp16, with a warning.\n\nA model that the format cannot represent is refused, and the error "
     "names the key. A weight that --dtype would make infinite is refused, too: fp16 ends at "
     "65504. The output appears complete or not at all.",
     export_options, cmd_export, 0,
     "lockstep export runs/qwen --format hf --dtype bf16 --out out/\n"
     "lockstep export runs/qwen --format gguf --dtype fp16 --out qwen.gguf\n"
     "lockstep export runs/qwen --format gguf --quantize int8 --out qwen-q8.gguf\n"
     "lockstep export runs/gpt2 --step best --format llmc --out gpt2.bin\n"},
    {"data",
     "prepare|inspect|train-tokenizer|pack|order|dedup|filter|split|merge|detokenize|verify|stats "
     "...",
     "turn text into tokens, and work on corpora and token files",
     "`lockstep data prepare` makes a token store from text; `data inspect` shows what a token "
     "file holds. `data dedup` and `data filter` make a corpus cleaner, `data split` and `data "
     "merge` cut and join, `data detokenize` makes text of tokens, `data verify` checks a store "
     "and `data stats` measures it. `data train-tokenizer` makes a tokenizer of text, and `data "
     "pack` chooses which documents share a sequence.",
     none, NULL, 0, NULL},
    {"data prepare", "--input PATH... --output PREFIX --tokenizer SPEC", "turn text into tokens",
     "Reads text files (one document each), JSONL files (one document per line) and folders of "
     "them, and writes a train and a validation store in Megatron's .bin/.idx format. A file "
     "appears under its final name only when it is complete. The tokenizer's name is kept "
     "beside the stores, so that training, evaluation and generation find it.\n\nWith --pairs "
     "or --chat a line of JSONL is an example for fine-tuning. PREFIX_train.mask and "
     "PREFIX_valid.mask say which tokens count: only the answers count in the loss of training "
     "and evaluation.\n\nBytes that are not UTF-8 are kept unchanged.",
     prepare_options, cmd_data_prepare, CMD_ANY_WORDS,
     "lockstep data prepare --input book.txt --output corpus --tokenizer byte\n"
     "lockstep data prepare --input web.jsonl.zst --output web --tokenizer gpt2/ --workers 8\n"
     "lockstep data prepare --input examples.jsonl --pairs --output tuned --tokenizer gpt2/\n"
     "lockstep data prepare --input talks.jsonl --chat --output tuned --tokenizer qwen2.5/\n"},
    {"data order", "RUN.yaml [KEY=VALUE...]", "show which samples the steps of a run take",
     "Prints a line for each sample of a step: the step, the number of the sample in the run, its "
     "source (data.train, or one of data.blend), the epoch of the source and the sample in it. "
     "Samples of T tokens are numbered from the beginning of their store. The order follows from "
     "the configuration alone: no layout and no resume changes it. With async.mode=diloco all "
     "workers are taken to take part; with async.mode=server a step takes the samples of the "
     "worker that pushes, and the command is refused for more than one.",
     order_options, cmd_data_order, 0,
     "lockstep data order runs/demo/config.yaml\n"
     "lockstep data order blend.yaml --from 1000 --steps 2\n"},
    {"data inspect", "PATH", "show what a token file holds",
     "PATH is the prefix of a .bin/.idx pair, an llm.c token file, u16:FILE for bare uint16 tokens "
     "as nanoGPT writes them, or a list of these with commas between. Prints their kind, the type "
     "of the tokens, how many sequences, documents and tokens there are, and the first tokens.",
     inspect_options, cmd_data_inspect, 1, "lockstep data inspect corpus_train --decode byte\n"},
    {"bench", "checkpoint|comm|data|int8|interop|machine|ops|pipeline|plan|step|tier|tokenizer ...",
     "measure this machine",
     "`lockstep bench ops`: the ops of a step; `bench int8`: products with weights of int8; `bench "
     "comm`: collectives; `bench machine`: all of it, for the planner; `bench plan`: a forecast "
     "beside a step; `bench pipeline`: schedules; `bench step`: whole training steps; `bench "
     "checkpoint`: saving and loading; `bench tier`: memory tiers; `bench tokenizer`: text to "
     "tokens; `bench data`: loading samples; `bench interop`: import and export. Each compares "
     "with the machine's own limit, measured in the same run.",
     none, NULL, 0, NULL},
    {"bench data",
     "data=STORE | blend=\"0.7 A 0.3 B\" [sequence=T] [batch=N] [batches=N] [from=SAMPLE] "
     "[rounds=N] [cache=DIR]",
     "measure loading samples",
     "Prints the time from nothing to the first batch at a sample of the run, and how many samples "
     "a second the loader gives from the page cache, beside plain reads of as many bytes at the "
     "same places. rounds=1 measures the first pass over data elsewhere, without a round before; "
     "the time to the first batch is then that of a start behind it. fetched_bytes is what servers "
     "sent to the loader.",
     none, cmd_bench_data, 0,
     "lockstep bench data data=runs/corpus_train sequence=64\n"
     "lockstep bench data blend=\"0.7 runs/web_train 0.3 runs/code_train\" from=1000000000\n"},
    {"bench int8", "[threads=N] [n=N] [k=N] [tiles=N] [isa=NAME] [arithmetic=NAME]",
     "measure products with weights of int8",
     "Multiplies 1 to 1024 rows of k=4096 with a matrix of n=4096 by k, in turns in fp32, in bf16, "
     "in int8 and with int8 weights alone, as --quantize has them for activations in bf16. Prints "
     "rates, and how many times as fast as bf16 each is.",
     none, cmd_bench_int8, 0, "lockstep bench int8\nlockstep bench int8 threads=1 n=3072 k=768\n"},
    {"bench comm", "[ranks=N] [bytes=N]", "measure collectives",
     "Prints time and bandwidth of an all-reduce for a range of sizes, beside the bandwidth of a "
     "copy; under mpirun, beside MPI_Allreduce.",
     none, cmd_bench_comm, 0, "lockstep bench comm ranks=2\nmpirun -n 2 lockstep bench comm\n"},
    {"bench machine", "[CONFIG.yaml] [key=value]...", "measure this machine for the planner",
     "Writes a cluster file for `lockstep plan`: how long each kind of op takes by shape, type and "
     "threads, each kind of collective by ranks and bytes, copies and the disk; all cores compute "
     "at once, as ranks do. With a configuration it measures exactly the operations of its layout "
     "(and of the same model cut over as many ranks as there are cores), so that a plan for it "
     "need not interpolate. Without one, it measures a grid of shapes. Under mpirun it measures "
     "each host, takes medians over hosts, names those that are more than 10 % slower, and "
     "measures the network between them; start one process for each host, or as many as will take "
     "part in its collectives. The grid takes about a minute on two idle cores, --quick a few "
     "seconds.\n\n--check trains a few steps of a configuration of one rank, in turns with a "
     "step's operations alone, and prints the times of both.",
     machine_options, cmd_bench_machine, 0,
     "lockstep bench machine --out machine.yaml\n"
     "lockstep bench machine --out machine.yaml run.yaml\n"
     "lockstep bench machine --check run.yaml --machine machine.yaml\n"},
    {"bench ops", "[CONFIG.yaml] [key=value]...", "measure the ops of a training step",
     "Records a step of the layout's first rank, GPT-2 124M unless keys say otherwise, and runs "
     "its ops again, on memory of their own, with all cores at work. Prints for each kind and "
     "shape how often it comes, its time, its rates, and its share of the machine's limit, "
     "measured before: for products and attention the rate of one large oneDNN product, for the "
     "others that of a copy. numerics.isa, numerics.arithmetic and numerics.precision choose what "
     "computes.",
     none, cmd_bench_ops, 0,
     "lockstep bench ops\n"
     "lockstep bench ops numerics.precision=fp32 numerics.isa=avx512 parallel.threads=1\n"
     "lockstep bench ops model.preset=llama3-8b model.layers=1 data.sequence=8192\n"},
    {"bench pipeline", "[ranks=N] [micro=N] [ms=N]", "measure the idle time of pipeline schedules",
     "Runs each schedule on thread ranks whose stages sleep, so that many ranks are concurrent on "
     "few cores, and prints the measured idle share beside the computed one.",
     none, cmd_bench_pipeline, 0,
     "lockstep bench pipeline\nlockstep bench pipeline ranks=16 micro=32 ms=60\n"},
    {"bench plan", "[CONFIG.yaml] [key=value]...", "compare a forecast with a measured step",
     "Forecasts a step of the layout on a measured machine (`lockstep bench machine --out`), runs "
     "a few steps of it here on random tokens, and prints both as one JSON object. With "
     "--rehearse, ranks compute nothing: they sleep for as long as their operations would take on "
     "cores so many times slower, and communicate as in a run. So schedules and overlap can be "
     "timed for more ranks than there are cores.",
     bench_plan_options, cmd_bench_plan, 0,
     "lockstep bench plan run.yaml --cluster machine.yaml parallel.tp=2\n"
     "lockstep bench plan run.yaml --cluster machine.yaml --rehearse 20 parallel.pp=8\n"},
    {"bench step", "[CONFIG.yaml] [key=value]...", "measure training steps",
     "Trains a few steps on random tokens and prints one JSON object: tokens per second, time of a "
     "step and of its update, peak memory, the rate of matrix products and its share of the "
     "machine's rate; with memory.offload the bytes that moved in a step, the seconds in which "
     "some were moving, and the seconds spent waiting for them; and for each axis of the layout "
     "the bytes that moved in a step, the bytes that should have, and the time spent waiting.",
     none, cmd_bench_step, 0,
     "lockstep bench step model.preset=gpt2-124m batch.global=4 parallel.dp=2\n"
     "lockstep bench step optim.name=muon\n"},
    {"bench checkpoint", "[CONFIG.yaml] [key=value]...", "measure saving and loading of a state",
     "Saves the state of a model, GPT-2 124M on two ranks unless keys say otherwise, resumes from "
     "it, and reshards it for tensor-parallel ranks, train.steps=3 times, in a folder inside "
     "train.out (default: the current folder), and removes all. In turns with these, as many ranks "
     "write as many bytes to plain files and sync them, read and digest them, and copy them. What "
     "is read is on the disk and not in memory. Saving and resuming include the hash of the state. "
     "Prints medians of seconds, and their ratios within a round; the last line has the seconds as "
     "one JSON object.",
     none, cmd_bench_checkpoint, 0, "lockstep bench checkpoint train.out=/mnt/nvme\n"},
    {"bench interop", "[folder=PATH] [mib=N] [rounds=N]", "measure import and export of a model",
     "Makes a Llama of mib=1024 MiB in bf16 as a Hugging Face folder, inside folder=PATH (default: "
     "the current folder). Imports it and exports it again, rounds=3 times, in turns with a plain "
     "program that reads and writes as many bytes and syncs them. Prints both rates, and the share "
     "of the plain one.",
     none, cmd_bench_interop, 0, "lockstep bench interop folder=/mnt/nvme\n"},
    {"bench tier", "[folder=PATH] [mib=N]", "measure memory tiers",
     "Moves mib=1024 MiB to host memory and to a file in folder=PATH (default: the current folder) "
     "and back, and prints the rates beside those of plain copies, and of plain O_DIRECT reads and "
     "writes of the same disk, measured in turns with them; the last line has them as one JSON "
     "object. With LOCKSTEP_IO_URING=0 in the environment, threads replace io_uring, as they do if "
     "the system does not allow it.",
     none, cmd_bench_tier, 0, "lockstep bench tier folder=/mnt/nvme\n"},
    {"bench tokenizer", "tokenizer=SPEC text=FILE [threads=N] [folder=PATH]",
     "measure encoding of text",
     "Encodes a text file, five times, on one thread and on several (as many as cores) that each "
     "encode all of it, and prints median rates; and that of `lockstep data prepare --workers 1`, "
     "which writes in folder=PATH (default: the current folder), in turns with one thread. The "
     "last line has them as one JSON object. bench/peers/tokenizer.py runs it beside tiktoken and "
     "tokenizers.",
     none, cmd_bench_tokenizer, 0,
     "lockstep bench tokenizer tokenizer=models/Qwen3-0.6B text=book.txt threads=4\n"},
    {"doctor", "", "show what this machine offers and what is missing",
     "Prints CPU, instruction sets, caches, memory, limits, libraries and MPI, and for what is "
     "missing the command that installs it. Exits with 0 if training can run.",
     none, cmd_doctor, CMD_NO_WORDS, NULL},
    {"plot", "RUN...", "draw the losses of runs",
     "Draws the training and validation losses of RUN/metrics.jsonl, and the learning rate below "
     "them, as an SVG picture: each step faint, and a line of means over them. Several runs share "
     "one picture. A step without a finite loss is a gap with a mark.",
     plot_options, cmd_plot, LS_PLOT_RUNS_MAX,
     "lockstep plot runs/demo\nlockstep plot runs/a runs/b --output both.svg\n"},
    {"profile", "RUN", "show where the time of a run went, against the plan",
     "Reads only the run's directory. Prints the parts of a step: computing, the optimizer, "
     "waits for samples and for other ranks by axis of the layout; medians over steps with the "
     "range that holds nine in ten of them, means over ranks. The first two steps after each "
     "start, skipped steps and those of a ramp-up are left out. One sentence names the "
     "bottleneck.\n\nWith --cluster it also prints the forecast of the same layout, and the "
     "difference. With log.profile=true a run also measures products, attention, passes over "
     "memory and the update.",
     profile_options, cmd_profile, 1,
     "lockstep profile runs/demo\n"
     "lockstep bench machine --out machine.yaml runs/demo/config.yaml\n"
     "lockstep profile runs/demo --cluster machine.yaml\n"},
    {"report", "RUN...", "show a run, or several side by side, as a page for a browser",
     "Writes one HTML file that holds everything it shows and loads nothing: losses, gradient norm "
     "and learning rate, throughput and its share of the machine's rate, where the time went by "
     "axis of the layout, the memory plan, ranks and schedule drawn, evaluations, checkpoints, "
     "events, and the configuration. It reads only the run's directory, and says what is missing "
     "there. The run may still be going on.\n\nFor two to six runs it says first up to which step "
     "each is equal to the first, bit by bit, and draws their curves over each other: losses "
     "against steps, tokens and time.",
     report_options, cmd_report, LS_REPORT_RUNS_MAX,
     "lockstep report runs/demo\nlockstep report runs/a runs/b --output ab.html\n"},
    {"help", "[PAGE]", "show this manual", "Shows the page of a sub-command.", help_options,
     cmd_help, 2, "lockstep help train\nlockstep help --man train | man -l -\n"},
};

static void page_add(struct cmd_page *all, size_t *count, const struct cmd_page *page)
{
    LS_ASSERT(*count < CMD_PAGES_MAX);
    all[(*count)++] = *page;
}

/* The pages above, with those of pages_data.c behind "data inspect". */
const struct cmd_page *cmd_pages(size_t *count)
{
    static struct cmd_page all[CMD_PAGES_MAX];
    static size_t made;
    bool first = made == 0;
    for (size_t i = 0; first && i < sizeof pages / sizeof *pages; i++) {
        bool data = strcmp(pages[i].name, "data inspect") == 0;
        page_add(all, &made, &pages[i]);
        for (const struct cmd_page *page = cmd_data_pages; data && page->name; page++)
            page_add(all, &made, page);
    }
    *count = made;
    return all;
}

/* Man pages have a dash where the command line has a space. */
static bool is_name(const char *name, const char *given)
{
    while (*name && (*name == *given || (*name == ' ' && *given == '-'))) {
        name++;
        given++;
    }
    return *name == *given;
}

const struct cmd_page *cmd_page_of(const char *name)
{
    size_t count;
    const struct cmd_page *all = cmd_pages(&count);
    for (size_t i = 0; i < count; i++)
        if (is_name(all[i].name, name))
            return &all[i];
    return NULL;
}

size_t cmd_page_names(const char **names)
{
    size_t count;
    const struct cmd_page *all = cmd_pages(&count);
    for (size_t i = 0; i < count; i++)
        names[i] = all[i].name;
    return count;
}

const struct cmd_exit_code *cmd_exit_codes(void)
{
    static const struct cmd_exit_code codes[] = {
        {LS_OK, "done"},
        {1, "an error without a code of its own (such as a check that failed)"},
        {LS_ECONFIG, "the command line or the configuration is wrong"},
        {LS_ELAYOUT, "the recipe does not admit this layout (ranks, micro-batches)"},
        {LS_EDATA, "a data file (corpus, tokens, tokenizer) is malformed or does not fit"},
        {LS_ECKPT, "a checkpoint is damaged or belongs to another recipe"},
        {LS_EIO, "the system refused to read or write"},
        {LS_ENOSPC, "no space left on the disk to write a file"},
        {LS_ENOMEM, "out of memory"},
        {LS_ECOMM, "a collective failed, did not match, or timed out"},
        {LS_ENUMERIC, "a loss, a gradient or a logit is not finite"},
        {LS_ESTOPPED, "stopped by a signal after saving a checkpoint; train.resume=auto resumes"},
        {LS_ENOTSUP, "this build or machine cannot do what was asked for"},
        {LS_EBUSY, "another run writes to this directory"},
        {0, NULL},
    };
    return codes;
}

// Measures graphile-worker: drain N [local], latency N [local], idle. BENCH_URL names an empty database.
import { setTimeout as sleep } from "node:timers/promises";
import { readFileSync } from "node:fs";
import { EventEmitter } from "node:events";
import { createRequire } from "node:module";
import { run, runMigrations, makeWorkerUtils, Logger } from "graphile-worker";

const pg = createRequire(createRequire(import.meta.url).resolve("graphile-worker"))("pg");
const [mode, count, variant] = process.argv.slice(2);
const connectionString = process.env.BENCH_URL;
const n = Number(count ?? 0);
const quiet = new Logger(() => () => {});

// "local" is what its documentation advises for throughput; without it, the defaults with 8 jobs at once.
const worker = variant === "local"
  ? { connectionString, concurrentJobs: 24, maxPoolSize: 12, localQueue: { size: 500, refetchDelay: { durationMs: 1 } }, completeJobBatchDelay: 0, failJobBatchDelay: 0, logger: quiet }
  : { connectionString, concurrentJobs: 8, logger: quiet };

const start = (taskList, events) => run({ preset: { worker }, noHandleSignals: true, taskList, events });
const print = (o) => console.log(JSON.stringify(o));

async function sql(text, values) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try { return await client.query(text, values); } finally { await client.end(); }
}

async function drain() {
  await runMigrations({ connectionString, logger: quiet });
  await sql(`SELECT graphile_worker.add_job('bench', json_build_object('n', g)) FROM generate_series(1, $1::int) g`, [n]);
  await sql("VACUUM ANALYZE");
  const events = new EventEmitter();
  let completed = 0, begin = 0;
  const all = new Promise((resolve) => events.on("job:complete", () => { if (++completed === n) resolve(); }));
  begin = performance.now();
  const runner = await start({ bench: async () => {} }, events);
  await all;
  // The event comes when the worker is done with the job; the last rows may still be on their way.
  for (;;) {
    const { rows } = await sql("SELECT count(*)::int AS left FROM graphile_worker._private_jobs");
    if (rows[0].left === 0) break;
  }
  print({ "cycles/s": n / ((performance.now() - begin) / 1000), n });
  await runner.stop();
}

async function latency() {
  await runMigrations({ connectionString, logger: quiet });
  const began = new Map();
  let wake = () => {};
  const runner = await start({ bench: async ({ i }) => { began.set(i, performance.now()); wake(); } });
  const utils = await makeWorkerUtils({ connectionString, logger: quiet });
  await sleep(500);
  const all = [];
  for (let i = 0; i < n; i++) {
    const here = new Promise((resolve) => { wake = resolve; });
    await utils.addJob("bench", { i });
    const committed = performance.now();
    await here;
    all.push(Math.max(0, began.get(i) - committed));
    await sleep(8 + Math.random() * 17);
  }
  all.sort((a, b) => a - b);
  const at = (q) => all[Math.ceil(q * all.length) - 1];
  print({ "p50 ms": at(0.5), "p99 ms": at(0.99), "max ms": all.at(-1), n });
  await utils.release();
  await runner.stop();
}

async function idle() {
  const runner = await start({ bench: async () => {} });
  await sleep(10000);
  const [, kb] = readFileSync("/proc/self/status", "utf8").match(/^VmRSS:\s+(\d+) kB/m);
  print({ "RSS MB": Number(kb) / 1024 });
  await runner.stop();
}

await { drain, latency, idle }[mode]();
process.exit(0);

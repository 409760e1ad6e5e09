-- The database of a run, metrics.db. Steps count finished training steps. Nothing is ever deleted: when a run goes on
-- from a checkpoint or back to one, its later steps come again under a new attempt, and the views show each step's valid rows
-- only. Tables hold facts, views answer questions. A `time` that is a whole number is milliseconds since 1970, UTC; the views
-- have it as text. Rows without a column `task` are of the training.

PRAGMA application_id = 1398361412; -- "SYMD"
PRAGMA user_version = 7;

-- One row for each start of the training program, and for each time that it went back to a checkpoint. An evaluation of the
-- finished run belongs to its last attempt.
CREATE TABLE IF NOT EXISTS run (
  attempt INTEGER PRIMARY KEY,  -- 1, 2, ...
  time TEXT NOT NULL,           -- start, UTC, ISO 8601
  start_step INTEGER NOT NULL,  -- the checkpoint's step it went on from or back to; -1 when it began afresh
  version TEXT NOT NULL,        -- of the program
  host TEXT NOT NULL,
  config TEXT NOT NULL,         -- the run file in force, all keys
  records INTEGER NOT NULL DEFAULT 0 -- written by this start so far, counted in the transaction that writes them
);

CREATE TABLE IF NOT EXISTS metric (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  time INTEGER,                 -- NULL: written by a version that did not keep it
  task TEXT NOT NULL,           -- train
  name TEXT NOT NULL,
  value REAL,                   -- NULL stands for not a number
  PRIMARY KEY (attempt, step, task, name)
) WITHOUT ROWID;

-- Statistics of single parameters.
CREATE TABLE IF NOT EXISTS parameter (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  time INTEGER,
  parameter TEXT NOT NULL,      -- its name in checkpoints
  name TEXT NOT NULL,           -- of the statistic
  value REAL,                   -- NULL stands for not a number
  PRIMARY KEY (attempt, step, parameter, name)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS event (
  attempt INTEGER NOT NULL REFERENCES run,
  time TEXT NOT NULL,           -- UTC, ISO 8601
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL
);

-- What the experts of a layer got in a step, an array of one count for each expert (0, 1, ...): see doc/metrics.md.
CREATE TABLE IF NOT EXISTS routing (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  time INTEGER,                 -- NULL: written by a version that did not keep it
  layer TEXT NOT NULL,
  tokens BLOB NOT NULL,         -- that each expert took
  dropped BLOB NOT NULL,        -- that were sent to it over its capacity; counts that are not there are 0
  PRIMARY KEY (step, attempt, layer)
) WITHOUT ROWID;

-- The same added up over the steps 1000 * block + 1 to 1000 * block + 1000 that have a row in routing.
CREATE TABLE IF NOT EXISTS routing_block (
  attempt INTEGER NOT NULL REFERENCES run,
  layer TEXT NOT NULL,
  expert INTEGER NOT NULL,      -- 0, 1, ...
  block INTEGER NOT NULL,
  part INTEGER NOT NULL,        -- 0; 1, 2, ...: the end of the block, which a later attempt replaced
  first_step INTEGER NOT NULL,  -- of the rows that are counted
  last_step INTEGER NOT NULL,
  steps INTEGER NOT NULL,       -- how many they are
  tokens INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  PRIMARY KEY (block, layer, expert, attempt, part)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS eval (
  id INTEGER PRIMARY KEY,       -- in the order they were made
  attempt INTEGER NOT NULL REFERENCES run,
  time TEXT NOT NULL,           -- UTC, ISO 8601
  step INTEGER NOT NULL,        -- of the weights
  task TEXT NOT NULL,           -- what was evaluated
  name TEXT NOT NULL,           -- wer, per, loss, items, ...
  value REAL,                   -- NULL stands for not a number
  settings TEXT                 -- how the texts were decoded; '': it is of none; NULL: by a version that did not keep it
);

-- Where the tokens of an evaluation went: what each expert of each layer took. One evaluated again at the same step replaces it.
CREATE TABLE IF NOT EXISTS eval_routing (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,        -- of the weights
  time INTEGER NOT NULL,
  task TEXT NOT NULL,           -- what was evaluated
  layer TEXT NOT NULL,
  expert INTEGER NOT NULL,      -- 0, 1, ...
  tokens INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  PRIMARY KEY (attempt, step, task, layer, expert)
) WITHOUT ROWID;

-- What the model wrote for some items of an evaluation.
CREATE TABLE IF NOT EXISTS example (
  id INTEGER PRIMARY KEY,       -- in the order they were made
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,        -- of the weights
  time TEXT NOT NULL,           -- UTC, ISO 8601
  task TEXT NOT NULL,           -- what was evaluated
  item INTEGER NOT NULL,        -- its place in the file, from 0
  input TEXT NOT NULL,
  target TEXT NOT NULL,         -- the first, if there are several
  prediction TEXT NOT NULL,
  score REAL                    -- NULL: none
);

-- ---- which rows are valid: all of an attempt unless a later attempt went on from an earlier step ----

CREATE VIEW valid_metric AS
  SELECT attempt, step, strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000.0, 'unixepoch') AS time, task, name, value
  FROM metric m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

CREATE VIEW valid_parameter AS
  SELECT attempt, step, strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000.0, 'unixepoch') AS time, parameter, name, value
  FROM parameter m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

-- One row an expert. The function that opens the arrays is a part of `switchyard metrics`; other programs have
-- valid_routing_block.
CREATE VIEW valid_routing AS
  SELECT attempt, step, strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000.0, 'unixepoch') AS time, layer, c.expert,
    c.tokens, c.dropped
  FROM routing m JOIN expert_counts(m.tokens, m.dropped) c
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

-- Where a later attempt goes on within a block, the block is split there; so a row is valid as a whole or not at all.
CREATE VIEW valid_routing_block AS
  SELECT attempt, layer, expert, block, first_step, last_step, steps, tokens, dropped
  FROM routing_block m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.last_step);

CREATE VIEW valid_eval AS
  SELECT id, attempt, time, step, task, name, value, settings FROM eval m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

CREATE VIEW valid_example AS
  SELECT id, attempt, step, time, task, item, input, target, prediction, score FROM example m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

CREATE VIEW valid_eval_routing AS
  SELECT attempt, step, strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000.0, 'unixepoch') AS time, task, layer, expert, tokens,
    dropped
  FROM eval_routing m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

-- ---- how training goes ----

-- One row a step.
CREATE VIEW loss_curve AS
  SELECT step,
    max(CASE name WHEN 'loss' THEN value END) AS loss,
    max(CASE name WHEN 'learning_rate' THEN value END) AS learning_rate,
    max(CASE name WHEN 'weight_gradient_norm' THEN value END) AS grad_norm
  FROM valid_metric WHERE task = 'train' GROUP BY step HAVING sum(name = 'loss') > 0;

-- What the loss is made of: its parts add up to it where it is a mean over target tokens. One row a step.
CREATE VIEW loss_parts AS
  SELECT step, loss, cross_entropy, cross_ent_loss - cross_entropy AS label_smoothing, z_loss, auxiliary_loss, router_z_loss
  FROM (SELECT step,
          max(CASE name WHEN 'loss' THEN value END) AS loss,
          max(CASE name WHEN 'cross_entropy' THEN value END) AS cross_entropy,
          max(CASE name WHEN 'cross_ent_loss' THEN value END) AS cross_ent_loss,
          max(CASE name WHEN 'z_loss' THEN value END) AS z_loss,
          max(CASE name WHEN 'experts/auxiliary_loss' THEN value END) AS auxiliary_loss,
          max(CASE name WHEN 'experts/router_z_loss' THEN value END) AS router_z_loss
        FROM valid_metric WHERE task = 'train' GROUP BY step HAVING sum(name = 'loss') > 0);

-- The loss without its noise: mean, lowest and highest of a row and the 49 before it. SQLite takes a value that leaves the
-- window off a running sum, which would keep an infinity, and the error of a value out of all proportion, to the end of the
-- run: neither is in the mean.
CREATE VIEW loss_smooth AS
  SELECT step, loss, avg(CASE WHEN abs(loss) < 1e12 THEN loss END) OVER w AS smooth, min(loss) OVER w AS low, max(loss) OVER w AS high
  FROM loss_curve WINDOW w AS (ORDER BY step ROWS 49 PRECEDING);

-- Steps whose gradients are over three times as large as in the 100 rows before, in the mean (which is made as that of
-- loss_smooth), or not a number.
CREATE VIEW gradient_spikes AS
  SELECT step, loss, grad_norm, mean_before, grad_norm / mean_before AS ratio
  FROM (SELECT step, loss, grad_norm,
          avg(CASE WHEN grad_norm < 1e12 THEN grad_norm END)
            OVER (ORDER BY step ROWS BETWEEN 100 PRECEDING AND 1 PRECEDING) AS mean_before
        FROM loss_curve)
  WHERE grad_norm IS NULL OR grad_norm > 3 * mean_before;

-- One row a step: real tokens of both sides a second, and seconds a step, since the row before.
CREATE VIEW throughput AS
  SELECT step, max(time) AS time,
    max(CASE name WHEN 'tokens_per_second' THEN value END) AS tokens_per_second,
    max(CASE name WHEN 'step_seconds' THEN value END) AS step_seconds
  FROM valid_metric WHERE task = 'train' AND name IN ('tokens_per_second', 'step_seconds') GROUP BY step;

-- Where the time of each attempt went: from its start to its last row or event, the mean of its steps, and the share of
-- the time that was spent in steps (the rest is starting, evaluating, saving).
CREATE VIEW timing AS
  SELECT attempt, began, ended, seconds, first_step, last_step, step_seconds, tokens_per_second,
    step_seconds * (last_step - max(start_step, 0)) / nullif(seconds, 0) AS share_in_steps
  FROM (SELECT attempt, began, ended, start_step, (julianday(ended) - julianday(began)) * 86400 AS seconds, first_step,
          last_step, step_seconds, tokens_per_second
        FROM (SELECT r.attempt, r.start_step, r.time AS began, min(m.step) AS first_step, max(m.step) AS last_step,
                max(coalesce((SELECT max(e.time) FROM event e WHERE e.attempt = r.attempt), r.time),
                  coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', max(m.time) / 1000.0, 'unixepoch'), r.time)) AS ended,
                avg(CASE m.name WHEN 'step_seconds' THEN m.value END) AS step_seconds,
                avg(CASE m.name WHEN 'tokens_per_second' THEN m.value END) AS tokens_per_second
              FROM run r LEFT JOIN metric m ON m.attempt = r.attempt AND m.task = 'train'
                AND m.name IN ('step_seconds', 'tokens_per_second')
              GROUP BY r.attempt));

-- What stopped each attempt. One without an end still runs, was killed, or failed with what the file `log` says.
CREATE VIEW stop_reason AS
  SELECT r.attempt, coalesce(e.time, (SELECT max(time) FROM event WHERE attempt = r.attempt)) AS time,
    coalesce(e.step, (SELECT max(step) FROM metric WHERE attempt = r.attempt)) AS step, coalesce(e.kind, 'none') AS kind,
    coalesce(e.text, 'no end is noted: it still runs, or it was killed or failed') AS text
  FROM run r LEFT JOIN event e ON e.rowid =
    (SELECT max(rowid) FROM event WHERE attempt = r.attempt AND kind IN ('done', 'stop', 'preemption', 'rollback'));

-- ---- experts ----

-- How well the routers serve their tokens, means over layers; one row a step of a model with experts.
CREATE VIEW expert_curve AS
  SELECT step,
    max(CASE name WHEN 'experts/auxiliary_loss' THEN value END) AS auxiliary_loss,
    max(CASE name WHEN 'experts/router_z_loss' THEN value END) AS router_z_loss,
    max(CASE name WHEN 'experts/fraction_tokens_left_behind' THEN value END) AS left_behind,
    max(CASE name WHEN 'experts/expert_usage' THEN value END) AS expert_usage,
    max(CASE name WHEN 'experts/router_confidence' THEN value END) AS router_confidence
  FROM valid_metric WHERE task = 'train' GROUP BY step HAVING sum(name = 'experts/auxiliary_loss') > 0;

-- How the tokens of a step spread over the experts of a layer; share is of the tokens that were taken. Ask for single
-- steps. Works in `switchyard metrics` alone, as valid_routing does.
CREATE VIEW expert_load AS
  SELECT m.step, m.layer, c.expert, c.tokens, c.dropped, 1.0 * c.tokens / nullif(counts_sum(m.tokens), 0) AS share
  FROM routing m JOIN expert_counts(m.tokens, m.dropped) c
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

-- How even the load of a layer's experts is, in blocks of 1,000 steps: that of the busiest and of the idlest expert
-- over the mean (1: all have the same), and how many got no token at all.
CREATE VIEW expert_balance AS
  SELECT layer, block, min(first_step) AS first_step, max(last_step) AS last_step, count(*) AS experts,
    sum(tokens) AS tokens, sum(dropped) AS dropped, 1.0 * max(tokens) * count(*) / nullif(sum(tokens), 0) AS busiest,
    1.0 * min(tokens) * count(*) / nullif(sum(tokens), 0) AS idlest, sum(tokens = 0) AS unused
  FROM (SELECT layer, block, expert, min(first_step) AS first_step, max(last_step) AS last_step,
          sum(tokens) AS tokens, sum(dropped) AS dropped
        FROM valid_routing_block GROUP BY block, layer, expert)
  GROUP BY block, layer;

-- What each expert took and had to drop over the whole run, in the steps that have rows in routing.
CREATE VIEW dropped_tokens AS
  SELECT layer, expert, sum(tokens) AS tokens, sum(dropped) AS dropped,
    1.0 * sum(dropped) / nullif(sum(tokens) + sum(dropped), 0) AS dropped_share
  FROM valid_routing_block GROUP BY layer, expert;

-- Which experts the tokens of each evaluated task go to, by its evaluation at the newest step: what share of the task's
-- tokens in a layer each expert took.
CREATE VIEW expert_tasks AS
  SELECT task, step, layer, expert, tokens, dropped,
    1.0 * tokens / nullif(sum(tokens) OVER (PARTITION BY task, layer), 0) AS share
  FROM (SELECT *, rank() OVER (PARTITION BY task ORDER BY step DESC, attempt DESC) AS place FROM valid_eval_routing)
  WHERE place = 1;

-- ---- evaluations ----

-- The newest result of every evaluation, of each way of decoding. One that an earlier version made, which did not keep
-- how, counts until there is another of the same task and name.
CREATE VIEW eval_latest AS
  SELECT e.task, e.step, e.name, e.value, e.time, e.settings FROM eval e
  JOIN (SELECT max(id) AS id FROM valid_eval GROUP BY task, name, settings) l ON l.id = e.id
  WHERE e.settings IS NOT NULL
    OR NOT EXISTS (SELECT 1 FROM valid_eval n WHERE n.task = e.task AND n.name = e.name AND n.id > e.id);

-- Every result, with the one before it of the same task, name and way of decoding.
CREATE VIEW evaluation_history AS
  SELECT id, task, name, step, time, value,
    lag(value) OVER (PARTITION BY task, name, settings ORDER BY id) AS value_before, settings
  FROM valid_eval;

-- The step of the best result of each task and name, the first one if there are several, and whether a checkpoint of
-- that step was saved: an event says so, or, where a kill came before that, a later attempt went on from it. Losses, error
-- rates, perplexities and shares of tokens left behind are best when small, the rest when large.
CREATE VIEW best_checkpoint AS
  SELECT task, name, step, value, time, settings, EXISTS (
      SELECT 1 FROM (SELECT attempt, step FROM event WHERE kind = 'checkpoint' UNION ALL SELECT attempt, start_step FROM run WHERE start_step > 0) c
      WHERE c.step = b.step AND NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > c.attempt AND r.start_step < c.step)) AS saved
  FROM (SELECT task, name, step, value, time, settings, row_number() OVER (PARTITION BY task, name ORDER BY
          CASE WHEN name IN ('wer', 'per', 'cer', 'ter', 'edit_distance') OR name LIKE '%loss%' OR name LIKE '%perplexity%'
                 OR name LIKE '%entropy%' OR name LIKE '%left_behind%'
               THEN value ELSE -value END, id) AS place
        FROM valid_eval WHERE value IS NOT NULL AND name NOT IN ('items', 'cut')) b
  WHERE place = 1;

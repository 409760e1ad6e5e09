-- The database of a run, metrics.db. Steps count finished training steps. Nothing is ever deleted: when a run goes on
-- from a checkpoint, its later steps come again under a new attempt, and the views show each step's valid rows only.
-- Tables hold facts, views answer questions.

PRAGMA application_id = 1398361412; -- "SYMD"
PRAGMA user_version = 2;

-- One row for each start of the training program. An evaluation of the finished run belongs to its last attempt.
CREATE TABLE run (
  attempt INTEGER PRIMARY KEY,  -- 1, 2, ...
  time TEXT NOT NULL,           -- start, UTC, ISO 8601
  start_step INTEGER NOT NULL,  -- the checkpoint's step it went on from; -1 when it began afresh
  version TEXT NOT NULL,        -- of the program
  host TEXT NOT NULL,
  config TEXT NOT NULL          -- the run file in force, all keys
);

CREATE TABLE metric (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  name TEXT NOT NULL,
  value REAL,                   -- NULL stands for not a number
  PRIMARY KEY (attempt, step, name)
) WITHOUT ROWID;

CREATE TABLE event (
  attempt INTEGER NOT NULL REFERENCES run,
  time TEXT NOT NULL,           -- UTC, ISO 8601
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL
);

CREATE TABLE routing (
  attempt INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  layer TEXT NOT NULL,
  expert INTEGER NOT NULL,      -- 0, 1, ...
  tokens INTEGER NOT NULL,      -- that the expert took
  dropped INTEGER NOT NULL,     -- that were sent to it over its capacity
  PRIMARY KEY (attempt, step, layer, expert)
) WITHOUT ROWID;

CREATE TABLE eval (
  id INTEGER PRIMARY KEY,       -- in the order they were made
  attempt INTEGER NOT NULL REFERENCES run,
  time TEXT NOT NULL,           -- UTC, ISO 8601
  step INTEGER NOT NULL,        -- of the weights
  task TEXT NOT NULL,           -- what was evaluated
  name TEXT NOT NULL,           -- wer, per, loss, items, ...
  value REAL                    -- NULL stands for not a number
);

-- A row of an attempt is valid unless a later attempt went on from an earlier step.
CREATE VIEW valid_metric AS
  SELECT attempt, step, name, value FROM metric m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

CREATE VIEW valid_routing AS
  SELECT attempt, step, layer, expert, tokens, dropped FROM routing m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

CREATE VIEW valid_eval AS
  SELECT id, attempt, time, step, task, name, value FROM eval m
  WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.attempt > m.attempt AND r.start_step < m.step);

-- One row a step.
CREATE VIEW loss_curve AS
  SELECT step,
    max(CASE name WHEN 'loss' THEN value END) AS loss,
    max(CASE name WHEN 'learning_rate' THEN value END) AS learning_rate,
    max(CASE name WHEN 'weight_gradient_norm' THEN value END) AS grad_norm
  FROM valid_metric GROUP BY step HAVING sum(name = 'loss') > 0;

-- How well the routers serve their tokens, means over layers; one row a step of a model with experts.
CREATE VIEW expert_curve AS
  SELECT step,
    max(CASE name WHEN 'experts/auxiliary_loss' THEN value END) AS auxiliary_loss,
    max(CASE name WHEN 'experts/router_z_loss' THEN value END) AS router_z_loss,
    max(CASE name WHEN 'experts/fraction_tokens_left_behind' THEN value END) AS left_behind,
    max(CASE name WHEN 'experts/expert_usage' THEN value END) AS expert_usage,
    max(CASE name WHEN 'experts/router_confidence' THEN value END) AS router_confidence
  FROM valid_metric GROUP BY step HAVING sum(name = 'experts/auxiliary_loss') > 0;

-- How the tokens of a step spread over the experts of a layer; share is of the tokens that were taken.
CREATE VIEW expert_load AS
  SELECT r.step, r.layer, r.expert, r.tokens, r.dropped, 1.0 * r.tokens / nullif(s.tokens, 0) AS share
  FROM valid_routing r
  JOIN (SELECT step, layer, sum(tokens) AS tokens FROM valid_routing GROUP BY step, layer) s
    ON s.step = r.step AND s.layer = r.layer;

-- The newest result of every evaluation.
CREATE VIEW eval_latest AS
  SELECT e.task, e.step, e.name, e.value, e.time FROM eval e
  JOIN (SELECT max(id) AS id FROM valid_eval GROUP BY task, name) l ON l.id = e.id;

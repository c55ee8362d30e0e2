/**
 * The Lua scripts of the registry in Redis. Each is atomic, and validates everything before its
 * first write: a script that Redis refuses (full, read-only, wrong types) has changed nothing.
 *
 * Most begin with the same keys, see `client.ts`: KEYS[1] the head, [2] the log, [3] to [7] the
 * tables. The head is a hash: the history (an id that a new registry gets), the version, the id of
 * the last commit, the hash key, the number of records of each table (n3 to n7), the bytes of the
 * log, and `settle`, the time (Unix ms) until which nothing is committed. The log is a stream with
 * the id `<version>-0`. Versions are decimal strings in both directions.
 */

import { composeLua, defineScript, type Script } from '../../redis/script.ts';
import { TABLE_NAMES } from '../store/schema.ts';
import claimFirstKey from './scripts/claim-first-key.lua';
import commit from './scripts/commit.lua';
import create from './scripts/create.lua';
import forgetMachine from './scripts/forget-machine.lua';
import install from './scripts/install.lua';
import listMachines from './scripts/list-machines.lua';
import read from './scripts/read.lua';
import readHead from './scripts/read-head.lua';
import readTime from './scripts/read-time.lua';
import readUptime from './scripts/read-uptime.lua';
import report from './scripts/report.lua';
import scan from './scripts/scan.lua';
import settleTime from './scripts/settle-time.lua';
import stage from './scripts/stage.lua';

/** The index of the first table in the keys of the scripts, from 1 as in Lua. */
export const FIRST_TABLE_INDEX = 3;

const CONSTANTS = {
  FIRST_TABLE: FIRST_TABLE_INDEX,
  LAST_TABLE: FIRST_TABLE_INDEX + TABLE_NAMES.length - 1,
  AUDIT_TABLE: FIRST_TABLE_INDEX + TABLE_NAMES.indexOf('audit'),
  /** Entries of the log in one answer. */
  LOG_PAGE: 200,
};

const FILES = {
  'read-head.lua': readHead,
  'read-time.lua': readTime,
  'read-uptime.lua': readUptime,
  'settle-time.lua': settleTime,
};

function registryScript(name: string, text: string, options = {}): Script {
  return defineScript(`registry-${name}`, composeLua(text, FILES, CONSTANTS, options), options);
}

export const READ = registryScript('read', read, { readsOnly: true });
export const SCAN = registryScript('scan', scan, { readsOnly: true });
export const COMMIT = registryScript('commit', commit);
export const CREATE = registryScript('create', create);
export const STAGE = registryScript('stage', stage);
export const INSTALL = registryScript('install', install);
export const CLAIM_FIRST_KEY = registryScript('claim-first-key', claimFirstKey);
export const REPORT = registryScript('report', report);
export const MACHINES = registryScript('machines', listMachines, { readsOnly: true });
export const FORGET = registryScript('forget', forgetMachine);

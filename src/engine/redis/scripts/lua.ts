/**
 * Puts the scripts of members together. A script that includes a file which is not here stops the
 * process at its start.
 */

import { composeLua, defineScript, type Script } from '../../../redis/script.ts';
import addToIndex from './add-to-index.lua';
import answerHeader from './answer-header.lua';
import bounded from './bounded.lua';
import clock from './clock.lua';
import enter from './enter.lua';
import membership from './membership.lua';
import publish from './publish.lua';
import { luaConstants } from './records.ts';
import storeMeta from './store-meta.lua';

/** Those that several scripts include. */
const FILES = {
  'add-to-index.lua': addToIndex,
  'answer-header.lua': answerHeader,
  'bounded.lua': bounded,
  'clock.lua': clock,
  'enter.lua': enter,
  'membership.lua': membership,
  'publish.lua': publish,
  'store-meta.lua': storeMeta,
};

const CONSTANTS = luaConstants();

interface MemberScriptOptions {
  /** Others that it includes. */
  files?: Readonly<Record<string, string>>;
  readsOnly?: boolean;
  /** Whether it runs at `maxmemory`. */
  allowsOom?: boolean;
  /** CREATES of a script that may leave the creation of keys to another. */
  creates?: boolean;
}

/** @param text a Lua file */
export function memberScript(
  name: string,
  text: string,
  options: MemberScriptOptions = {},
): Script {
  const { files = {}, creates, ...flags } = options;
  const constants = creates === undefined ? CONSTANTS : { ...CONSTANTS, CREATES: creates };
  const composed = composeLua(text, { ...FILES, ...files }, constants, flags);
  return defineScript(name, composed, flags);
}

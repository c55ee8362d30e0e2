/**
 * The entry of a thread that reads the files of the rules once: the main thread starts it as
 * `load-rules.js`. The reader of YAML takes a second for some thousand rules, in which the main
 * thread could do nothing else. Its memory goes with the thread.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { StartError } from '../../core/errors.ts';
import { readFolder } from '../config/folder.ts';
import { parseConfiguration } from '../config/parse.ts';
import type { LoadedRules, RulesToLoad } from '../messages.ts';

const { folder, isCompatible, mergesDomains }: RulesToLoad = workerData;

function load(): LoadedRules {
  let signature: string | undefined;
  try {
    const { files, ...read } = readFolder(folder);
    signature = read.signature;
    const configuration = parseConfiguration(files, { isCompatible, mergesDomains });
    return { signature, configuration };
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    return { signature, fault: error.message };
  }
}

parentPort!.postMessage(load());

#!/usr/bin/env node
/**
 * The entry of the command `weir`: on a Node that is not supported it says so, before anything is
 * imported that such a Node could not even read.
 */

import { engines } from '../package.json';
import { checkNode } from './start/node.mjs';

if (checkNode(engines.node)) await import('./dispatch.ts');

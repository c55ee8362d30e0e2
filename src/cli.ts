#!/usr/bin/env node
/**
 * The entry of the command `weir`. On a Node version that is not supported it says so, before it
 * imports code that such a Node might not even parse.
 */

import { engines } from '../package.json';
import { checkNode } from './start/node.mjs';

if (checkNode(engines.node)) await import('./dispatch.ts');

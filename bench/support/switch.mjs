/** For `node --import`: adds switches to the code of weir when it is loaded. */

import { register } from 'node:module';

register('./switch-hooks.mjs', import.meta.url);

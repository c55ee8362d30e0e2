/** The entry of the dashboard in the browser. */

import { render } from 'preact';
import { App } from './app.tsx';
import { applyTheme } from './common/theme.tsx';

applyTheme();
render(<App />, document.getElementById('app')!);

import './app.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { keys } from './lib/keys.svelte';
import { live } from './lib/live.svelte';

keys.start();
live.start();
mount(App, { target: document.querySelector('#app') as HTMLElement });

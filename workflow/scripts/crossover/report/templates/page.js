"use strict";

// Charts: the static drawing stays where the live one cannot be made.
for (const spec of document.querySelectorAll("script.spec")) {
  const figure = spec.closest("figure");
  figure.classList.add("is-live");
  vegaEmbed(figure.querySelector(".live"), JSON.parse(spec.textContent), {
    ast: true, // expressions are interpreted: the page's policy forbids eval
    actions: false,
    defaultStyle: false,
    renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  }).catch((error) => {
    figure.classList.remove("is-live");
    console.error(error);
  });
}

// Theme: the system's until the reader chooses.
const root = document.documentElement;
const toggle = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const name = () => {
  toggle.textContent = isDark() ? "Light theme" : "Dark theme";
};
toggle.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  name();
});
systemDark.addEventListener("change", name);
name();
toggle.hidden = false;

// Copying; where the browser forbids it, the text is selected instead.
for (const button of document.querySelectorAll("button.copy")) {
  const text = button.parentElement.querySelector("pre");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

// Paper shows everything.
const opened = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    opened.push(details);
  }
});
addEventListener("afterprint", () => {
  while (opened.length) opened.pop().open = false;
});

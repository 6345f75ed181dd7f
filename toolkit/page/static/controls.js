/* Copy buttons and the switch between light and dark. */
async function copyText(button) {
  const text = button.dataset.copy ?? button.closest(".listing").querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { readonly: true, "aria-hidden": "true", class: "sr" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    button.focus();
    if (!done) return;
  }
  const before = button.textContent;
  button.textContent = "copied";
  button.classList.add("done");
  setTimeout(() => {
    button.textContent = before;
    button.classList.remove("done");
  }, 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button.copy");
  if (button) copyText(button);
});

const themeButton = byId("theme");
const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const nameTheme = () => { themeButton.textContent = isDark() ? "light" : "dark"; };
themeButton.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("ctk-theme", next); } catch { /* a frame without storage */ }
  nameTheme();
});
themeButton.hidden = false;
nameTheme();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open ||= each.textContent.length < 20000; }));
